-- Takes the lock, or says how long its holder still has it. One script, so one step for everybody else.
-- KEYS: lock, token, tombstone of this attempt
-- ARGV: value, ttl in ms, proposed token number, payload
-- Answers {'granted', number}, {'held', ms or -1} or {'undone'}.
-- It reads before it writes: an error can then only come from the first write, and means that nothing was written.
local lock, token, tombstone = KEYS[1], KEYS[2], KEYS[3]
local value, ttl = ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', lock) == 1 then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  if holder ~= value then
    return {'held', redis.call('PTTL', lock)}
  end
  -- This very attempt holds it already: a resent request gets the same grant again, and the ttl is not touched,
  -- because the holder counts it from the first sending.
  local stored = redis.call('HMGET', token, 'value', 'held')
  if stored[1] == value and stored[2] then
    return {'granted', stored[2]}
  end
end

-- The undo of this attempt was here before it: it must not come back.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

-- max(stored + 1, proposal). See token.rs, which is tested against this.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local number = math.min(tonumber(ARGV[3]), now + 60000000)
local stored = tonumber(redis.call('HGET', token, 'counter') or '')
if stored then
  number = math.max(number, stored + 1)
else
  number = math.max(number, now)
end
-- Never by concatenation, which writes a number of this size with an exponent.
local text = string.format('%.0f', number)

redis.call('SET', lock, value, 'PX', ttl)
redis.call('HSET', token, 'counter', text, 'held', text, 'value', value, 'payload', ARGV[4])
-- When the counter goes, the clock has passed it by a day, so what starts from the clock again is above it.
local expires = math.max(math.floor(number / 1000), math.floor(now / 1000)) + 86400000 + ttl
redis.call('PEXPIREAT', token, string.format('%.0f', expires))
return {'granted', text}
