-- Joins this node to a lease that a majority of the others keeps: takes the lock here if it is free.
-- KEYS: lock, token, tombstone of this attempt
-- ARGV: value, ttl in ms, token of the grant, payload
-- Answers {'granted', number of this holding}, {'held', ms or -1, value} or {'undone'}.
-- A node in quarantine joins, too: whoever else it may have voted for has no majority while this lease has one.
local lock, token, tombstone = unpack(KEYS)
local value, ttl = ARGV[1], tonumber(ARGV[2])
local number = ARGV[3]

local stored = redis.call('HMGET', token, 'counter', 'value', 'held')
if redis.call('EXISTS', lock) == 1 then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  if holder ~= value then
    return {'held', redis.call('PTTL', lock), type(holder) == 'string' and holder or ''}
  end
  -- The node granted, and its answer was lost.
  if stored[2] == value and stored[3] then
    number = stored[3]
  end
end
-- The lease was given back before this arrived.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

-- A node that forgot its counter learns of the grants that it has missed.
local counter = ARGV[3]
if stored[1] and tonumber(stored[1]) > tonumber(counter) then
  counter = stored[1]
end
redis.call('SET', lock, value, 'PX', ttl)
redis.call('HSET', token, 'counter', counter, 'held', number, 'value', value, 'payload', ARGV[4])
redis.call('PEXPIREAT', token, string.format('%.0f', math.floor(tonumber(counter) / 1000) + 86400000 + ttl))
return {'granted', number}
