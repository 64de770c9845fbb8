-- Gives a reader another number here, one that this node has given to nobody, while the very holding that was counted for
-- the grant stands.
-- ARGV: value, number that this node gave to the holding, the other number, stamp
-- Answers 1 when it has it, {counter} when this node may have given it to somebody else, 0 when the holding is gone.
if not is_member then
  return 0
end
local number, since, payload = reader(value)
local wanted = tonumber(ARGV[3])
-- This request was here before.
if number == wanted then
  return 1
end
-- The same value with another number is another holding, of which the reader does not know.
if number ~= tonumber(ARGV[2]) then
  return 0
end
-- Readers do not exclude each other, so others are given numbers here meanwhile. A counter that jumps to a number reaches
-- it once: of two readers that want the same one, a node gives it to one.
local counter = stored_counter() or 0
-- Safeguard: a node gives a number to one reader (Redlock)
if counter >= wanted then
  return {counter}
end
raise_counter(wanted, 0)
redis.call('HSET', reading, value, reader_note(wanted, since, payload))
redis.pcall('PUBLISH', lock .. ':changed', '')
return 1
