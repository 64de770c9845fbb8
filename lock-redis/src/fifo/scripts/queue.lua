-- The queue of a lock: what all of its scripts have in common. Each of them begins with this, after prologue.lua.
-- KEYS: lock, token, tombstone of this attempt, delay, readers, reading, queue, fresh, waiters
-- ARGV: value of this attempt, channel of changes, ...
-- queue: values by their place. fresh: values by the time, in ms, until which they count as alive. waiters: by value, who
-- it is and what a grant to it looks like. All three expire when nobody has been heard of for long enough.
local lock, token, tombstone, delayed, readers, reading, queue, fresh, waiters = unpack(KEYS)
local value, changes = ARGV[1], ARGV[2]
local now, ms = clock()

-- Every key is read by a command of its type before the first write: an error can then only come from the first write,
-- and means that nothing was written.
redis.call('HLEN', token)
redis.call('GET', delayed)
redis.call('ZCARD', readers)
redis.call('ZCARD', queue)
redis.call('ZCARD', fresh)
redis.call('HLEN', waiters)

-- Whether this attempt holds it. pcall: a key of another type is a foreign holder, not an error.
local function is_holder()
  -- Safeguard: catalogue: a late release leaves the next holder alone (Redis, queue)
  -- Safeguard: only the holder gives the lock on (Redis, queue)
  return redis.pcall('GET', lock) == value
end

-- How long it is still closed to `one`, in ms: it is held, by one alone or by readers, or a holder that was lost may still
-- be at work. -1 without an end; nil when it is open.
local function closed_for(one)
  if redis.call('EXISTS', lock) == 1 then
    return redis.call('PTTL', lock)
  end
  local readers_end = last_end(readers)
  if readers_end and readers_end >= ms then
    return readers_end - ms
  end
  local lost = redis.call('GET', delayed)
  if lost and lost ~= one then
    return redis.call('PTTL', delayed)
  end
end

-- The number under which this attempt holds it; false when that is not known any more.
local function number_held()
  local stored = redis.call('HMGET', token, 'value', 'held')
  return stored[1] == value and stored[2]
end

-- The newest number that was given out: a grant after this moment has a higher one.
local function newest()
  return redis.call('HGET', token, 'counter') or '0'
end

local function close_for_delay(holder, ttl, delay)
  if delay > 0 then
    redis.call('SET', delayed, holder, 'PX', ttl + delay)
  end
end

-- Arms the ttl of this attempt, which holds it, anew.
local function arm(ttl, delay)
  redis.call('PEXPIRE', lock, ttl)
  close_for_delay(value, ttl, delay)
end

-- pcall: where publishing is not allowed, those who look on look again by themselves.
local function announce_change()
  redis.pcall('PUBLISH', changes, '')
end

-- Makes `holder` the holder.
local function grant(holder, ttl, delay, proposal, payload)
  local number = next_number(token, proposal, now)
  local text = digits(number)
  redis.call('DEL', readers, reading)
  redis.call('SET', lock, holder, 'PX', ttl)
  count(token, number, now, ttl, 'held', text, 'value', holder, 'payload', payload, 'since', digits(now))
  close_for_delay(holder, ttl, delay)
  announce_change()
  return text
end

local function step_out(waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('ZREM', fresh, waiter)
  redis.call('HDEL', waiters, waiter)
end

-- Alive for another `span` of ms.
local function freshen(span)
  redis.call('ZADD', fresh, digits(ms + span), value)
  for _, key in ipairs({queue, fresh, waiters}) do
    if redis.call('PTTL', key) < span then
      redis.call('PEXPIRE', key, span)
    end
  end
end

-- If nobody holds the lock, hands it to the first in the queue that is alive, and to nobody else: only its client is told.
-- The lock is its own for a short time only, until its first renewal, so that one that died does not keep it for a ttl.
local function promote()
  -- Safeguard: the dead do not stand in line (Redis, queue)
  local dead = redis.call('ZRANGEBYSCORE', fresh, '-inf', digits(ms))
  for _, waiter in ipairs(dead) do
    step_out(waiter)
  end
  if dead[1] then
    announce_change()
  end
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  while first and not closed_for(first) do
    local packed = redis.call('HGET', waiters, first)
    local alive = redis.call('ZSCORE', fresh, first)
    step_out(first)
    if packed and alive then
      local waiter = cmsgpack.unpack(packed)
      local number = grant(first, waiter.claim, waiter.delay, waiter.proposal, waiter.payload)
      -- pcall: where publishing is not allowed, its next heartbeat tells it.
      redis.pcall('PUBLISH', waiter.channel, first .. ' ' .. number)
    end
    first = redis.call('ZRANGE', queue, 0, 0)[1]
  end
end
