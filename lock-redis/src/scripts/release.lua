-- Gives the lock back, if it is still this holder's, and wakes those who wait for it.
-- KEYS: lock, token, delay if it is looked at, tombstone of this attempt if it may be left
-- ARGV: value, channel, ms to keep a tombstone (0: none), channel of changes, whether
--       the attempt asked for a lock delay (1 or 0)
-- Answers 0 when the lock was gone or another's, else 1 + the number of those who heard of it.
local is_undo = ARGV[3] ~= '0'

-- The acquisition that this undoes may still be on its way over a connection that broke: let it find this. Also where
-- something was given back: what was sent twice may come twice.
local function bury()
  if is_undo then
    redis.call('SET', KEYS[4], '', 'PX', ARGV[3])
  end
end

-- Here and below pcall: whatever somebody has put in the place of the other keys, the lock is given back, and those who wait
-- for it are told.
local function open_at_once()
  if ARGV[5] == '1' and redis.pcall('GET', KEYS[3]) == ARGV[1] then
    redis.call('DEL', KEYS[3])
  end
end

-- pcall: a key of another type is another's lock.
-- Safeguard: a release deletes only its own value (Redis)
-- Safeguard: catalogue: a late release leaves the next holder alone (Redis)
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  if is_undo then
    bury()
    -- Nobody was told of this grant, so nobody is at work under it.
    open_at_once()
  end
  return 0
end
-- The first write: a server without memory for a tombstone still takes the lock away.
-- Safeguard: an undo leaves its tombstone also where it gave the lock back (Redis)
redis.call('DEL', KEYS[1])
bury()
-- In order, so the lock opens at once. After any other end the delay stays.
open_at_once()
-- The counter stays; who held it and with which payload is of no use any more.
-- Safeguard: a lock is given back whatever stands beside it (Redis)
redis.pcall('HDEL', KEYS[2], 'held', 'value', 'payload', 'since')
redis.pcall('PUBLISH', ARGV[4], '')
-- How many hear it tells each of them how long to hold back, so that not all of them try at once. pcall: a user who may
-- not publish has released all the same, and those who wait look again by themselves.
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2] or 0
local heard = redis.pcall('PUBLISH', ARGV[2], listeners)
return 1 + (tonumber(heard) or 0)
