-- Makes a reader of the holder, in one step: no writer comes between, and nobody is asked who waits.
-- KEYS: lock, token, readers, reading, delay
-- ARGV: value, ttl in ms, ms of lock delay, channel of releases, channel of changes
-- Answers 1 when this attempt reads now, 0 when the lock was gone or another's.
local lock, token, readers, reading, delayed = unpack(KEYS)
local value, ttl, delay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now, ms = clock()
-- Safeguard: a downgrade is the holder's own (Redis)
if redis.pcall('GET', lock) ~= value then
  -- A resent request finds what the first one made, and does not touch its end.
  if redis.call('ZSCORE', readers, value) then
    return 1
  end
  return 0
end
read_members(readers, reading)
local lost = redis.call('GET', delayed)
local stored = redis.call('HMGET', token, 'held', 'since', 'payload')
-- The number that it was granted stays; without it (somebody emptied the counter) it is not the same holding.
if not stored[1] then
  return 0
end
enter(readers, reading, value, ms + ttl + delay, holder_note(stored[1], stored[2] or now, delay, '0', stored[3] or ''))
redis.call('DEL', lock)
if lost == value then
  redis.call('DEL', delayed)
end
redis.call('HDEL', token, 'held', 'value', 'payload', 'since')
redis.pcall('PUBLISH', ARGV[5], '')
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[4])[2] or 0
redis.pcall('PUBLISH', ARGV[4], listeners)
return 1
