-- Extends the lease, if it is still this holder's.
-- KEYS: lock, token, delay if there is one
-- ARGV: value, ttl in ms, ms of lock delay, [number that this node granted]
-- Answers 1 when extended, 0 when the lock is gone or another's.
local ttl = tonumber(ARGV[2])
-- pcall: a key of another type is another's lock.
-- Safeguard: a renewal extends only its own value (Redis)
-- Safeguard: catalogue: a renewal does not set the key (Redis)
-- Safeguard: catalogue: a renewal does not set the key (Redlock)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
-- The same value with another number is another holding: a quorum may not count it as the one that it was granted.
if ARGV[4] and redis.call('HGET', KEYS[2], 'held') ~= ARGV[4] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ttl)
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ttl + tonumber(ARGV[3]))
end
-- A lock that is held for days must not outlive its counter.
if redis.call('PTTL', KEYS[2]) < ttl + 43200000 then
  redis.call('PEXPIRE', KEYS[2], ttl + 86400000)
end
return 1
