-- Gives the lock back, if it is still this holder's, and wakes those who wait for it.
-- KEYS: lock, token, tombstone of this attempt
-- ARGV: value, channel, ms to keep a tombstone when there was nothing to give back (0: none)
-- Answers 0 when the lock was gone or another's, else 1 + the number of those who heard of it.
-- pcall: a key of another type is another's lock.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  -- The acquisition that this undoes may still be on its way over a connection that broke: let it find this.
  if ARGV[3] ~= '0' then
    redis.call('SET', KEYS[3], '', 'PX', ARGV[3])
  end
  return 0
end
redis.call('DEL', KEYS[1])
-- The counter stays; who held it and with which payload is of no use any more.
redis.call('HDEL', KEYS[2], 'held', 'value', 'payload')
-- How many hear it tells each of them how long to hold back, so that not all of them try at once. pcall: a user who may
-- not publish has released all the same, and those who wait look again by themselves.
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2] or 0
local heard = redis.pcall('PUBLISH', ARGV[2], listeners)
return 1 + (tonumber(heard) or 0)
