-- Extends the lease of a reader or of a permit, if it is still there.
-- KEYS: members, notes, token
-- ARGV: value, ttl in ms, ms of lock delay, [number that this node granted]
-- Answers 1 when extended, 0 when it is gone.
local members, notes, token = unpack(KEYS)
local value, ttl, delay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local _, ms = clock()
local ends = tonumber(redis.call('ZSCORE', members, value) or '')
-- One whose lease has ended is lost, though its place may still be kept for its lock delay.
-- Safeguard: a reader that has ended is not renewed (Redis)
if not ends or ends - delay < ms then
  return 0
end
-- The same value with another number is another holding: a quorum may not count it as the one that it was granted.
if ARGV[4] and string.match(redis.call('HGET', notes, value) or '', '^%d+') ~= ARGV[4] then
  return 0
end
redis.call('ZADD', members, digits(ms + ttl + delay), value)
keep_until_last_end(members, notes)
-- What is held for days must not outlive its counter.
if redis.call('PTTL', token) < ttl + 43200000 then
  redis.call('PEXPIRE', token, ttl + 86400000)
end
return 1
