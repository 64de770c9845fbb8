-- Extends the lease of a reader or of a permit, if it has not ended.
-- KEYS: members, notes
-- ARGV: packed number, value, ttl in ms, ms of lock delay
-- Answers 1 when it was extended, else 0.
local members, notes, value, delay = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[4])
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = tonumber(redis.call('ZSCORE', members, value) or '')
-- One whose lease has ended is lost, though its place may still be kept for its lock delay.
-- Safeguard: a reader that has ended is not renewed (Redis)
if not ends or ends - delay < ms then
  return 0
end
if string.sub(redis.call('HGET', notes, value) or '', 1, 8) ~= ARGV[1] then
  return 0
end
redis.call('ZADD', members, string.format('%.0f', math.max(ends, ms + tonumber(ARGV[3]) + delay)), value)
local expires = string.format('%.0f', redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')[2] + 1000)
redis.call('PEXPIREAT', members, expires)
redis.call('PEXPIREAT', notes, expires)
return 1
