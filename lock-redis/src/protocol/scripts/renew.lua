-- Extends the lease of one that holds the lock alone, if it holds it by that grant: another grant of the same attempt, which
-- was sent twice, is another holding.
-- KEYS: lock, delay if there is one
-- ARGV: packed number and value, value, ttl in ms, ms of lock delay
-- Answers 1 when it was extended, else 0.
-- pcall: a key of another type is another's lock.
local held = redis.pcall('GET', KEYS[1])
-- Safeguard: a renewal extends only its own value (Redis)
-- Safeguard: a renewal is of one grant (Redis)
-- Safeguard: catalogue: a renewal does not set the key (Redis)
if type(held) ~= 'string' or string.sub(held, 10, 49) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
-- Safeguard: a renewal takes the lock delay along (Redis)
if ARGV[4] ~= '0' then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3] + ARGV[4])
end
return 1
