-- Takes back the note that a writer waits, and wakes the readers that waited for it.
-- KEYS: writers, writing, lock
-- ARGV: writer, channel of releases
-- Answers 1 when there was one, else 0.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
-- pcall: whatever somebody has put in the place of the times, the readers are told.
redis.pcall('HDEL', KEYS[2], ARGV[1])
-- While somebody holds the lock alone they wait for that one's release, too.
if redis.call('EXISTS', KEYS[3]) == 0 then
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2] or 0
  redis.pcall('PUBLISH', ARGV[2], listeners)
end
return 1
