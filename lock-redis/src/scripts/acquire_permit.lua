-- Takes one of several permits, or says when the first of them ends.
-- KEYS: permits, permitted, token, tombstone of this attempt
-- ARGV: value, ttl in ms, proposed token number, payload, channel of changes, ms of lock delay, number of permits
-- Answers {'granted', number}, {'held', ms}, {'permits', number of permits} or {'undone'}.
-- It reads before it writes, as acquire.lua does.
local permits, permitted, token, tombstone = unpack(KEYS)
local value, ttl, delay, of = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6]), ARGV[7]
local now, ms = clock()

-- This very attempt has one already: as in acquire.lua.
local mine = redis.call('HGET', permitted, value)
if mine and redis.call('ZSCORE', permits, value) then
  return {'granted', string.match(mine, '^%d+')}
end
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

remove_ended(permits, permitted, ms)
local first = redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')
if first[1] then
  -- All who hold one named the same number, that of the oldest: whoever named another was refused.
  local named = string.match(redis.call('HGET', permitted, first[1]) or '', '^%d+ %d+ %d+ (%d+) ')
  if named and named ~= of then
    return {'permits', tonumber(named)}
  end
  -- Safeguard: no more permits than there are (Redis)
  if redis.call('ZCARD', permits) >= tonumber(of) then
    return {'held', tonumber(first[2]) - ms}
  end
end

local number = next_number(token, ARGV[3], now)
enter(permits, permitted, value, ms + ttl + delay, holder_note(number, now, delay, of, ARGV[4]))
count(token, number, now, ttl)
redis.pcall('PUBLISH', ARGV[5], '')
return {'granted', digits(number)}
