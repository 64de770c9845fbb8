-- Takes the lock for one holder alone, or says how long others still have it. One script, so one step for everybody else.
-- KEYS: lock, token, tombstone of this attempt, readers, reading, writers, writing, delay
-- ARGV: value, ttl in ms, proposed token number, payload, channel of changes, ms of lock delay;
--       of one that waits: writer, ms since it came, ms to keep its note, whether it is noted (0: no, 1: perhaps, 2: surely);
--       of the writer behind it: writer, ms since it came
-- Answers {'granted', number}, {'held', ms or -1} or {'undone'}.
-- It reads before it writes: an error can then only come from the first write, and means that nothing was written (but
-- that what had ended before was removed).
local lock, token, tombstone, readers, reading, writers, writing, delayed = unpack(KEYS)
local value, ttl, writer = ARGV[1], tonumber(ARGV[2]), ARGV[7]

local function held(left)
  -- Not for an attempt whose undo was here before it: nobody would take the note back.
  if writer and ARGV[10] ~= '2' and redis.call('EXISTS', tombstone) == 0 then
    local now, ms = clock()
    read_members(writers, writing)
    announce(writers, writing, writer, now - tonumber(ARGV[8]) * 1000, ms, tonumber(ARGV[9]))
  end
  return {'held', left}
end

local is_clear = redis.call('EXISTS', lock, readers, delayed, tombstone) == 0
if not is_clear then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  if holder == value then
    -- This very attempt holds it already: a resent request gets the same grant again, and the ttl is not touched,
    -- because the holder counts it from the first sending.
    local stored = redis.call('HMGET', token, 'value', 'held')
    if stored[1] == value and stored[2] then
      return {'granted', stored[2]}
    end
  elseif holder then
    return held(redis.call('PTTL', lock))
  end
end

local now, ms = clock()
if not is_clear then
  local readers_end = last_end(readers)
  -- Safeguard: a writer waits for the readers (Redis)
  if readers_end and readers_end >= ms then
    return held(readers_end - ms)
  end
  -- A holder that was lost may still be at work.
  local lost = redis.call('GET', delayed)
  -- Safeguard: a lock delay keeps the lock closed (Redis)
  if lost and lost ~= value then
    return held(redis.call('PTTL', delayed))
  end
  -- The undo of this attempt was here before it: it must not come back.
  -- Safeguard: an acquisition finds the tombstone of its undo (Redis)
  if redis.call('EXISTS', tombstone) == 1 then
    return {'undone'}
  end
  if readers_end then
    redis.call('DEL', readers, reading)
  end
end

-- One who does not wait, or who was never refused, leaves these alone.
-- Safeguard: every key is read by its type before a grant is written (Redis)
if writer and (ARGV[10] ~= '0' or ARGV[11]) then
  read_members(writers, writing)
end
local number = next_number(token, ARGV[3], now)
local text = digits(number)
redis.call('SET', lock, value, 'PX', ttl)
count(token, number, now, ttl, 'held', text, 'value', value, 'payload', ARGV[4], 'since', digits(now))
if ARGV[6] ~= '0' then
  redis.call('SET', delayed, value, 'PX', ttl + tonumber(ARGV[6]))
end
if writer and ARGV[10] ~= '0' then
  redis.call('ZREM', writers, writer)
  redis.call('HDEL', writing, writer)
end
if ARGV[11] then
  announce(writers, writing, ARGV[11], now - tonumber(ARGV[12]) * 1000, ms, tonumber(ARGV[9]))
end
-- pcall: a user who may not publish holds it all the same.
redis.pcall('PUBLISH', ARGV[5], '')
return {'granted', text}
