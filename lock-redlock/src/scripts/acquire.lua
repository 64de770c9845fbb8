-- One node's vote: takes the lock here, or says who has it. One script, so one step for everybody else.
-- KEYS: lock, token, tombstone of this attempt, waiters, reservation, member, quarantine
-- ARGV: value, ttl in ms, proposed token number, payload, waiter or '', its place, ms to keep the waiters,
--       ms of a quarantine or 0 for none
-- Answers {'granted', number}, {'held', ms or -1, value}, {'reserved', ms}, {'undone'} or {'quarantined', ms}.
-- It reads before it writes: an error can then only come from the first write, and means that nothing was written.
local lock, token, tombstone, waiters, reservation, member, quarantine = unpack(KEYS)
local value, ttl, payload, waiter = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5]

if ARGV[8] ~= '0' then
  local state = redis.call('MGET', member, quarantine)
  if not state[1] then
    -- Whoever emptied the node (a flush needs no restart), it has forgotten whom it voted for.
    redis.call('SET', quarantine, '', 'PX', ARGV[8])
    redis.call('SET', member, string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'))
    return {'quarantined', tonumber(ARGV[8])}
  end
  if state[2] then
    return {'quarantined', redis.call('PTTL', quarantine)}
  end
end

local function line_up()
  if waiter ~= '' then
    redis.call('ZADD', waiters, ARGV[6], waiter)
    redis.call('PEXPIRE', waiters, ARGV[7])
  end
end

if redis.call('EXISTS', lock) == 1 then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  if holder ~= value then
    local remaining = redis.call('PTTL', lock)
    line_up()
    return {'held', remaining, type(holder) == 'string' and holder or ''}
  end
  -- This very attempt holds it already: a resent request gets the same answer again, and the ttl is not touched,
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

-- For a moment after a release the lock is kept for the waiter that was woken.
local reserved = redis.call('GET', reservation)
if reserved and reserved ~= waiter then
  local remaining = redis.call('PTTL', reservation)
  line_up()
  return {'reserved', remaining}
end

-- max(stored + 1, proposal), so that nodes that nothing disturbed agree.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- A client whose clock is ahead cannot push the numbers away for good.
local number = math.min(tonumber(ARGV[3]), now + 60000000)
local stored = tonumber(redis.call('HGET', token, 'counter') or '')
if stored then
  number = math.max(number, stored + 1)
elseif number < now - 250000 then
  -- A client whose clock is behind must not start below what was given out and lost here. Within a quarter of a second
  -- its proposal stands, so that the nodes agree on the first grant of a name, too.
  number = now
end
-- Never by concatenation, which writes a number of this size with an exponent.
local text = string.format('%.0f', number)

redis.call('SET', lock, value, 'PX', ttl)
redis.call('HSET', token, 'counter', text, 'held', text, 'value', value, 'payload', payload)
-- When the counter goes, the clock has passed it by a day, so what starts from the clock again is above it.
local expires = math.max(math.floor(number / 1000), math.floor(now / 1000)) + 86400000 + ttl
redis.call('PEXPIREAT', token, string.format('%.0f', expires))
if waiter ~= '' then
  redis.call('ZREM', waiters, waiter)
end
if reserved then
  redis.call('DEL', reservation)
end
return {'granted', text}
