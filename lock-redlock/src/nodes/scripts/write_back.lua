-- Raises this node's counter to the token of a writer's grant, and the number of its holding with it, while the very
-- holding that was counted for the grant stands.
-- ARGV: value, number that this node gave to the holding, token, channel of changes, stamp
-- Answers 1 when the counter has reached the token, 0 when the holding is gone or another server answers.
local held = redis.call('HGET', token, 'held')
-- pcall: a key of another type is another's lock.
if not is_member or redis.pcall('GET', lock) ~= ARGV[1] then
  return 0
end
-- This request was here before.
if held == ARGV[3] then
  return 1
end
-- The same value with another number is another holding: a resent acquisition can come back after the first one ended
-- and somebody else was granted in between, whose token must not be passed from behind.
-- Safeguard: a write-back compares value and number (Redlock)
if held ~= ARGV[2] then
  return 0
end
raise_counter(ARGV[3], 0)
redis.call('HSET', token, 'held', ARGV[3])
redis.pcall('PUBLISH', ARGV[4], '')
return 1
