-- Raises this node's counter to the token of a grant, while the very holding that was counted for the grant stands.
-- KEYS: lock, token
-- ARGV: value, number that this node gave to the holding, token
-- Answers 1 when the counter has reached the token, 0 when the holding is gone.
local stored = redis.call('HMGET', KEYS[2], 'held', 'counter')
-- pcall: a key of another type is another's lock.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
-- The same value with another number is another holding: a resent acquisition can come back after the first one ended
-- and somebody else was granted in between, whose token must not be passed from behind.
if stored[1] ~= ARGV[2] then
  return 0
end
if tonumber(stored[2] or '0') < tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[2], 'counter', ARGV[3])
end
return 1
