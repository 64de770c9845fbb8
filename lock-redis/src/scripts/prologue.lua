-- What several scripts have in common; it stands before each of them.

-- The server's clock, in microseconds and in whole milliseconds.
local function clock()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  return seconds * 1000000 + micros, seconds * 1000 + math.floor(micros / 1000)
end

-- Never by concatenation, which writes a number of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

-- The number of the next grant: max(proposal, stored + 1, clock). See token.rs, which is tested against this.
local function next_number(token, proposal, now)
  -- A client whose clock is ahead cannot push the numbers away for good. One whose clock is behind takes no part: what is
  -- stored may lag behind what was given out, after a failover, and then only the clock says how far that had come.
  -- Safeguard: no number is below the server's clock (Redis)
  local number = math.max(math.min(tonumber(proposal), now + 60000000), now)
  local stored = tonumber(redis.call('HGET', token, 'counter') or '')
  if stored then
    -- Safeguard: the stored counter raises the token (Redis)
    return math.max(number, stored + 1)
  end
  return number
end

-- Notes that `number` was given out, with what else there is to be noted.
local function count(token, number, now, ttl, ...)
  redis.call('HSET', token, 'counter', digits(number), ...)
  -- When the counter goes, the clock has passed it by a day, so what starts from the clock again is above it.
  local expires = math.max(math.floor(number / 1000), math.floor(now / 1000)) + 86400000 + ttl
  redis.call('PEXPIREAT', token, digits(expires))
end

-- Members: a sorted set of those who share something, each until its own end in milliseconds of the server's clock, and a
-- hash with a note on each of them. One that died ends by itself and does not live on others' renewals.

-- Removes those that have ended. pcall: where somebody has put something else in the place of the notes, they have gone.
local function remove_ended(members, notes, ms)
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

-- Adds a member with its note, or moves its end. Both keys have been read.
local function enter(members, notes, member, ends, note)
  redis.call('ZADD', members, digits(ends), member)
  redis.call('HSET', notes, member, note)
  keep_until_last_end(members, notes)
end

-- The note on a holder: number and time of its grant, how long it stays closed after it, of how many, who it is.
local function holder_note(number, since, delay, of, payload)
  return table.concat({digits(number), digits(since), digits(delay), of, payload}, ' ')
end

-- Notes for `kept` ms that a writer waits, from when it came, so that readers who come later wait for it. A note that is there
-- stays. Both keys have been read.
local function announce(writers, writing, writer, came, ms, kept)
  -- Else those of the dead would stay for as long as others go on waiting, where no reader ever comes to look.
  -- Safeguard: the notes of dead writers go with the next one's (Redis)
  remove_ended(writers, writing, ms)
  redis.call('ZADD', writers, digits(ms + kept), writer)
  redis.call('HSETNX', writing, writer, digits(came))
  keep_until_last_end(writers, writing)
end
