-- Gives back what is held, and hands it to nobody: while a cluster moves a slot a script runs only where all of its keys are,
-- and this one names only keys that are there. The next beat hands it over.
-- KEYS: lock; or members, notes
-- ARGV: value, ms of lock delay
-- Answers {1 when it was held, else 0, 1 when more could be granted}.
local value = ARGV[1]
if not KEYS[2] then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) ~= 'string' or #held < 49 or string.sub(held, 18, 49) ~= value then
    return {0, 0}
  end
  redis.call('DEL', KEYS[1])
  return {1, 1}
end
local time = redis.call('TIME')
local ends = tonumber(redis.call('ZSCORE', KEYS[1], value) or '')
if not ends or ends - tonumber(ARGV[2]) < time[1] * 1000 + math.floor(time[2] / 1000) then
  return {0, 0}
end
redis.call('ZREM', KEYS[1], value)
redis.pcall('HDEL', KEYS[2], value)
return {1, 1}
