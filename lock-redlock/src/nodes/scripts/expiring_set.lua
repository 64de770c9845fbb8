-- A sorted set of those who share something, each until its own end in milliseconds of the server's clock, and a
-- hash with a note on each of them. One that died ends by itself and does not live on others' renewals.

-- Never by concatenation, which writes a number of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

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
