-- Raises this node's counter to the token of a writer's grant, and the number of its holding with it, while the very
-- holding that was counted for the grant stands.
-- ARGV: value, number that this node gave to the holding, token, stamp
-- Answers 1 when the counter has reached the token, 0 when the holding is gone or another server answers.
local number, token_of_grant = own(value), tonumber(ARGV[3])
if not is_member or not number then
  return 0
end
-- This request was here before.
if number == token_of_grant then
  return 1
end
-- The same value with another number is another holding: a resent acquisition can come back after the first one ended
-- and somebody else was granted in between, whose token must not be passed from behind.
-- Safeguard: a write-back compares value and number (Redlock)
if number ~= tonumber(ARGV[2]) then
  return 0
end
raise_counter(token_of_grant, 0)
redis.call('SETRANGE', lock, 9, struct.pack('<d', token_of_grant))
redis.pcall('PUBLISH', lock .. ':changed', '')
return 1
