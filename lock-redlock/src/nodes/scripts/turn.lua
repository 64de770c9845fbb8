-- Whose turn it is when somebody is gone: those are woken and nobody else, and for a moment the lock is kept for them.

-- For how many ms: a few round trips, so that newcomers do not split the vote with them, and short, should they not come.
local RESERVED = 10

local function wake(waiter)
  -- Only who listens is woken; one that died, or is not listening yet and will look for itself, is passed over. A waiter's
  -- name begins with its channel.
  -- pcall: a user who may not publish has released all the same, and then nobody can be told of it.
  -- Safeguard: who may not publish releases all the same (Redlock)
  local heard = redis.pcall('PUBLISH', lock .. ':released:' .. string.match(waiter, '^[^@]*'), '')
  return type(heard) == 'number' and heard > 0
end

local function wake_a_writer()
  local front = redis.call('ZPOPMIN', waiters)
  while front[1] do
    if wake(front[1]) then
      redis.call('SET', reservation, front[1], 'PX', RESERVED)
      return true
    end
    front = redis.call('ZPOPMIN', waiters)
  end
  return false
end

-- Wakes the readers that came before the first writer that waits.
local function wake_readers()
  if redis.call('EXISTS', waiting) == 0 then
    return false
  end
  -- Those that were woken before, and have not come.
  redis.call('ZREMRANGEBYSCORE', waiting, WOKEN, WOKEN)
  local first = writers_before(now)
  local woken = false
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', first and '(' .. digits(first) or '+inf')) do
    if wake(waiter) then
      redis.call('ZADD', waiting, WOKEN, waiter)
      woken = true
    else
      redis.call('ZREM', waiting, waiter)
    end
  end
  if woken then
    redis.call('SET', reservation, 'readers', 'PX', RESERVED)
  end
  return woken
end

-- After a writer, who came first: readers before the first writer.
local function pass_turn_after_a_writer()
  return wake_readers() or wake_a_writer()
end

-- After the last reader a writer, if one waits: so it waits for one crowd of readers, and not for those that come meanwhile.
local function pass_turn_after_readers()
  return wake_a_writer() or wake_readers()
end

-- For those who look on. pcall: a user who may not publish has released all the same.
local function tell_of_change()
  redis.pcall('PUBLISH', lock .. ':changed', '')
end
