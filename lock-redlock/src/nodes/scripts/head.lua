-- How the scripts on a lock go on after the prologue: its keys, this node's clock, and its readers.
-- KEYS: lock, token, tombstone of this attempt, readers, reading, writers, writing, waiters, waiting readers, reservation
local lock, token, tombstone, readers, reading, writers, writing, waiters, waiting, reservation = unpack(KEYS)
local now, ms = clock()
-- The place of a waiting reader whose turn it is.
local WOKEN = '-1'

-- How many read here.
local function readers_here()
  remove_ended(readers, reading, ms)
  return redis.call('ZCARD', readers)
end

-- Number, time (us) and payload of a reader; nothing when it does not read here (any more).
local function reader(value)
  local ends = tonumber(redis.call('ZSCORE', readers, value) or '')
  if ends and ends >= ms then
    return string.match(redis.call('HGET', reading, value) or '', '^(%d+) (%d+) %d+ %d+ (.*)$')
  end
end

-- Lets it read here for `ttl` ms from now.
local function let_read(value, ttl, number, since, payload)
  enter(readers, reading, value, ms + ttl, table.concat({number, since, '0', '0', payload}, ' '))
end

-- A writer waits, since `waited` ms.
local function writer_waits(waiter, waited, kept)
  announce(writers, writing, waiter, now - tonumber(waited) * 1000, ms, tonumber(kept))
end

local function writer_gone(waiter)
  redis.call('HDEL', writing, waiter)
  return redis.call('ZREM', writers, waiter) == 1
end

-- Of the writers that wait: when the first of them came (us), and for how many ms those that came no later than `came` keep
-- readers out unless they look again, 0 for none.
local function writers_before(came)
  remove_ended(writers, writing, ms)
  local first, left, all = nil, 0, redis.call('ZRANGE', writers, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    local theirs = tonumber(redis.call('HGET', writing, all[at]) or '0')
    first = math.min(first or theirs, theirs)
    if theirs <= came then
      left = math.max(left, tonumber(all[at + 1]) - ms, 1)
    end
  end
  return first, left
end

-- A reader waits. Its place is when it came on this node's clock, as for writers that keep readers out.
local function reader_waits(waiter, waited, kept)
  redis.call('ZADD', waiting, digits(now - tonumber(waited) * 1000), waiter)
  redis.call('PEXPIRE', waiting, kept)
end

-- A writer waits. Its place is when it came on this node's clock, and the first one that it was given: what a later
-- request takes to arrive does not move it.
local function writer_lines_up(waiter, waited, kept)
  -- Safeguard: the line is by how long each has waited, on the node's clock (Redlock)
  redis.call('ZADD', waiters, 'NX', digits(now - tonumber(waited) * 1000), waiter)
  redis.call('PEXPIRE', waiters, kept)
end

-- What is held for days must not outlive its counter.
local function keep_counter(ttl)
  if redis.call('PTTL', token) < ttl + 43200000 then
    redis.call('PEXPIRE', token, ttl + 86400000)
  end
end

-- The counter never goes down, and goes a day after the clock has passed it.
local function raise_counter(number, ttl)
  local stored = redis.call('HGET', token, 'counter')
  local counter = math.max(tonumber(stored or '0'), tonumber(number))
  redis.call('HSET', token, 'counter', digits(counter))
  if redis.call('PTTL', token) < ttl + 43200000 then
    redis.call('PEXPIREAT', token, digits(math.max(math.floor(counter / 1000), ms) + 86400000 + ttl))
  end
end
