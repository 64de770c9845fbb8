-- Takes the lock beside other readers, or says how long to wait: for the writer that holds it, or for one that waits and
-- was here first.
-- KEYS: lock, token, tombstone of this attempt, readers, reading, writers, writing, delay
-- ARGV: value, ttl in ms, proposed token number, payload, channel of changes, ms of lock delay, ms since it came
-- Answers {'granted', number}, {'held', ms or -1} or {'undone'}.
-- It reads before it writes, as acquire.lua does.
local lock, token, tombstone, readers, reading, writers, writing, delayed = unpack(KEYS)
local value, ttl, delay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])
local now, ms = clock()

-- This very attempt reads already: as in acquire.lua.
local mine = redis.call('HGET', reading, value)
if mine and redis.call('ZSCORE', readers, value) then
  return {'granted', string.match(mine, '^%d+')}
end

-- Whoever has the lock key, and of whichever type it is, holds the lock alone.
-- Safeguard: a reader waits for the writer (Redis)
if redis.call('EXISTS', lock) == 1 then
  return {'held', redis.call('PTTL', lock)}
end
if redis.call('EXISTS', delayed) == 1 then
  return {'held', redis.call('PTTL', delayed)}
end
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

-- A writer that was refused before this reader came goes first.
local came, left = now - tonumber(ARGV[7]) * 1000, nil
remove_ended(writers, writing, ms)
local waiting = redis.call('ZRANGE', writers, 0, -1, 'WITHSCORES')
for at = 1, #waiting, 2 do
  -- Safeguard: a reader does not overtake a writer that waits (Redis)
  if tonumber(redis.call('HGET', writing, waiting[at]) or '0') <= came then
    left = math.max(left or 0, tonumber(waiting[at + 1]) - ms)
  end
end
if left then
  return {'held', left}
end

remove_ended(readers, reading, ms)
local number = next_number(token, ARGV[3], now)
enter(readers, reading, value, ms + ttl + delay, holder_note(number, now, delay, '0', ARGV[4]))
count(token, number, now, ttl)
redis.pcall('PUBLISH', ARGV[5], '')
return {'granted', digits(number)}
