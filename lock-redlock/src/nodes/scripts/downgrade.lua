-- Makes a reader of the writer that holds the lock here, in one step, and wakes the readers that may go in with it.
-- ARGV: value, ttl in ms, number that this node gave to the holding, token of the grant, payload, stamp
-- Answers 1 when it reads now, 0 when the holding is gone, -1 when another server answers.
local ttl = tonumber(ARGV[2])
if not is_member then
  return stamp == '' and 0 or -1
end
local number, since = own(value)
if not number then
  -- This request was here before.
  return reader(value) == tonumber(ARGV[4]) and 1 or 0
end
-- The same value with another number is another holding, and somebody else may have been granted in between.
-- Safeguard: a downgrade compares value and number (Redlock)
if number ~= tonumber(ARGV[3]) then
  return 0
end
read_members(readers, reading)
stored_counter()
redis.call('DEL', lock)
let_read(value, ttl, ARGV[4], since, ARGV[5])
raise_counter(ARGV[4], ttl)
tell_of_change()
wake_readers()
return 1
