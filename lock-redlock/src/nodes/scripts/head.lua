-- How the scripts on a lock go on after the prologue: its keys, this node's clock, who holds it, its readers and those who
-- wait.
-- KEYS: lock
-- ARGV: value of the attempt, ...
local lock, value = KEYS[1], string.sub(ARGV[1], 1, 32)
local token, tombstone, reservation = lock .. ':token', lock .. ':undone:' .. value, lock .. ':reserved'
local readers, reading, waiting = lock .. ':readers', lock .. ':reading', lock .. ':waiting'
local writers, writing, waiters = lock .. ':writers', lock .. ':writing', lock .. ':waiters'
local now, ms = clock()
-- The place of a waiting reader whose turn it is.
local WOKEN = '-1'

-- What the lock key holds: the value of the attempt, the number and the time (us) of its grant, and who it is. Of what
-- another library has put there only the text, which is '' for another type of key; nothing where there is no key.
-- Whoever that is holds the lock.
local function holder()
  -- A key of another type is no error here: hence pcall.
  local held = redis.pcall('GET', lock)
  if type(held) ~= 'string' then
    return held and ''
  end
  if #held < 49 or string.byte(held) ~= 1 then
    return held
  end
  local since, number = struct.unpack('<dd', held, 2)
  return string.sub(held, 18, 49), number, since, string.sub(held, 50)
end

-- Whoever asks finds a holding of the very attempt `value` by its number.
local function own(value)
  local its, number, since, payload = holder()
  if its == value then
    return number, since, payload
  end
end

-- Members: a sorted set of those who share something, each until its own end in milliseconds of the server's clock, and a
-- hash with a note on each of them. One that died ends by itself and does not live on others' renewals.

-- Removes those that have ended. pcall: where somebody has put something else in the place of the notes, they have gone.
local function remove_ended(members, notes)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', '(' .. digits(ms))) do
    redis.call('ZREM', members, member)
    redis.pcall('HDEL', notes, member)
  end
end

-- A key that somebody has given another type raises an error here. A script has to do this, or another command that reads
-- the key by its type, before the first write: nothing is undone behind an error.
local function read_members(members, notes)
  redis.call('ZCARD', members)
  redis.call('HLEN', notes)
end

-- When the last of them ends; nil when there is none.
local function last_end(members)
  return tonumber(redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')[2] or '')
end

-- Both keys go by themselves, a moment after the last member has ended.
local function keep_until_last_end(members, notes)
  local expires = digits(last_end(members) + 1000)
  redis.call('PEXPIREAT', members, expires)
  redis.call('PEXPIREAT', notes, expires)
end

-- How many read here.
local function readers_here()
  remove_ended(readers, reading)
  return redis.call('ZCARD', readers)
end

-- Number, time (us) and payload of a reader; nothing when it does not read here (any more).
local function reader(value)
  local ends = tonumber(redis.call('ZSCORE', readers, value) or '')
  if ends and ends >= ms then
    local number, since, payload = string.match(redis.call('HGET', reading, value) or '', '^(%d+) (%d+) %d+ %d+ (.*)$')
    return tonumber(number), tonumber(since), payload
  end
end

local function reader_note(number, since, payload)
  return table.concat({digits(number), digits(since), '0', '0', payload}, ' ')
end

-- Lets it read here for `ttl` ms from now. Both keys have been read.
local function let_read(value, ttl, number, since, payload)
  redis.call('ZADD', readers, digits(ms + ttl), value)
  redis.call('HSET', reading, value, reader_note(number, since, payload))
  keep_until_last_end(readers, reading)
end

-- A writer waits, since `waited` ms: readers who come later wait for it, for `kept` ms. When it came stays. Both keys have been
-- read.
local function writer_waits(waiter, waited, kept)
  -- Else those of the dead would stay for as long as others go on waiting, where no reader ever comes to look.
  remove_ended(writers, writing)
  redis.call('ZADD', writers, digits(ms + tonumber(kept)), waiter)
  redis.call('HSETNX', writing, waiter, digits(now - tonumber(waited) * 1000))
  keep_until_last_end(writers, writing)
end

local function writer_gone(waiter)
  redis.call('HDEL', writing, waiter)
  return redis.call('ZREM', writers, waiter) == 1
end

-- Of the writers that wait: when the first of them came (us), and for how many ms those that came no later than `came` keep
-- readers out unless they look again, 0 for none.
local function writers_before(came)
  remove_ended(writers, writing)
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

-- The counter of this node; nil where it has none. A key of another type raises an error: an earlier version of this library
-- keeps a hash there.
local function stored_counter()
  return tonumber(redis.call('GET', token) or '')
end

-- What is held for days must not outlive its counter.
local function keep_counter(ttl)
  if redis.call('PTTL', token) < ttl + 43200000 then
    redis.call('PEXPIRE', token, ttl + 86400000)
  end
end

-- The counter never goes down, and goes days after the clock has passed it, so what starts from the clock again is above it.
local function raise_counter(number, ttl)
  local counter = math.max(stored_counter() or 0, tonumber(number))
  redis.call('SET', token, counter, 'PX', math.floor(math.max(counter - now, 0) / 1000) + 259200000 + ttl)
end
