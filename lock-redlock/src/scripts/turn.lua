-- Whose turn it is when somebody is gone: those are woken and nobody else, and for a moment the lock is kept for them.
-- ARGV: value, channel of changes, prefix of the waiters' channels, ms of a reservation, ...
local function wake(waiter)
  -- Only who listens is woken; one that died, or is not listening yet and will look for itself, is passed over.
  return redis.call('PUBLISH', ARGV[3] .. waiter, '') > 0
end

local function wake_a_writer()
  local front = redis.call('ZPOPMIN', waiters)
  while front[1] do
    if wake(front[1]) then
      redis.call('SET', reservation, front[1], 'PX', ARGV[4])
      return true
    end
    front = redis.call('ZPOPMIN', waiters)
  end
  return false
end

-- Wakes the readers whose place is below `limit`.
local function wake_readers(limit)
  local woken = false
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', limit)) do
    woken = wake(waiter) or woken
  end
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', limit)
  if woken then
    redis.call('SET', reservation, 'readers', 'PX', ARGV[4])
  end
  return woken
end

local function wake_readers_unless_a_writer_waits()
  return writers_before(now) == 0 and wake_readers('+inf')
end

-- Wakes the readers that came before the first writer in line.
local function wake_first_readers()
  if redis.call('EXISTS', waiting) == 0 then
    return false
  end
  local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
  if first[2] then
    return wake_readers('(' .. first[2])
  end
  return wake_readers_unless_a_writer_waits()
end

-- After a writer: who came first, as far as the line of this node goes.
local function pass_turn_after_a_writer()
  return wake_first_readers() or wake_a_writer() or wake_readers_unless_a_writer_waits()
end

-- After the last reader a writer, if one waits: so it waits for one crowd of readers, and not for those that come meanwhile.
local function pass_turn_after_readers()
  return wake_a_writer() or wake_readers_unless_a_writer_waits()
end

-- For those who look on. pcall: a user who may not publish has released all the same.
local function tell_of_change()
  redis.pcall('PUBLISH', ARGV[2], '')
end
