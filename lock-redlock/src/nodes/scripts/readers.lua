-- Those who read here: an expiring set, with a note on the grant of each.
local readers, reading = lock .. ':readers', lock .. ':reading'

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
