-- Joins this node to the lease of a writer that a majority of the others keeps: takes the lock here if it is free.
-- ARGV: value, ttl in ms, token of the grant, payload, stamp
-- Answers {'granted', number of this holding}, {'held', ms or -1, value}, {'read', ms}, {'undone'} or {'stranger',
-- stamp}.
-- A node in quarantine joins, too: whoever else it may have voted for has no majority while this lease has one.
local value, ttl, number = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not is_member then
  return {'stranger', stamp}
end

-- Where it holds the lock already, the node granted and its answer was lost: from here on that holding is the lease's.
if redis.call('EXISTS', lock) == 1 then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  if holder ~= value then
    return {'held', redis.call('PTTL', lock), type(holder) == 'string' and holder or ''}
  end
end
-- Also where the reader is this lease itself: it was downgraded since this was sent.
if readers_here() > 0 then
  return {'read', last_end(readers) - ms}
end
-- The lease was given back before this arrived.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

local stored = redis.call('HMGET', token, 'value', 'since')
local since = stored[1] == value and stored[2] or digits(now)
redis.call('SET', lock, value, 'PX', ttl)
-- A node that forgot its counter learns of the grants that it has missed.
raise_counter(number, ttl)
redis.call('HSET', token, 'held', number, 'value', value, 'payload', ARGV[4], 'since', since)
return {'granted', number}
