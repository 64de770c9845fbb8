-- Gives back what an attempt has on this node, and wakes the waiter that is next.
-- KEYS: lock, token, tombstone of this attempt, waiters, reservation
-- ARGV: value, ms to keep a tombstone when there was nothing to give back (0: none), waiter or '',
--       its place to stay in line or '' to leave the line, ms to keep the waiters, prefix of the waiters' channels,
--       ms of a reservation
-- Answers 1 when given back, 0 when the lock was gone or another's.
local lock, token, tombstone, waiters, reservation = unpack(KEYS)
local value, waiter, place = ARGV[1], ARGV[3], ARGV[4]

-- pcall: a key of another type is another's lock.
local held = redis.pcall('GET', lock) == value
if held then
  redis.call('DEL', lock)
  -- The counter stays; who held it and with which payload is of no use any more.
  redis.call('HDEL', token, 'held', 'value', 'payload')
elseif ARGV[2] ~= '0' then
  -- The acquisition that this undoes may still be on its way over a connection that broke: let it find this.
  redis.call('SET', tombstone, '', 'PX', ARGV[2])
end

-- A half-won vote is given back by one that stays in line and tries again by itself, as those do who lost to it.
local wake = held
if waiter ~= '' and place ~= '' then
  redis.call('ZADD', waiters, place, waiter)
  redis.call('PEXPIRE', waiters, ARGV[5])
  wake = false
elseif waiter ~= '' then
  redis.call('ZREM', waiters, waiter)
  -- Its turn, which it does not take, goes to the next.
  if redis.call('GET', reservation) == waiter then
    redis.call('DEL', reservation)
    wake = true
  end
end

if wake and redis.call('EXISTS', lock) == 0 then
  local front = redis.call('ZPOPMIN', waiters)
  while front[1] do
    -- Only one that listens is woken; one that died, or is not listening yet and will look for itself, is passed over.
    if redis.call('PUBLISH', ARGV[6] .. front[1], '') > 0 then
      redis.call('SET', reservation, front[1], 'PX', ARGV[7])
      break
    end
    front = redis.call('ZPOPMIN', waiters)
  end
end
return held and 1 or 0
