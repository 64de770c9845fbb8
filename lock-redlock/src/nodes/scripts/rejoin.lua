-- Joins this node to the lease of a writer that a majority of the others keeps: takes the lock here if it is free.
-- ARGV: value, ttl in ms, token of the grant, payload, stamp
-- Answers the number of this holding, {'held', ms or -1, value}, {'read', ms}, {'undone'} or {'stranger',
-- stamp}.
-- A node in quarantine joins, too: whoever else it may have voted for has no majority while this lease has one.
local ttl, number = tonumber(ARGV[2]), tonumber(ARGV[3])
if not is_member then
  return {'stranger', stamp}
end

-- Where it holds the lock already, the node granted and its answer was lost: from here on that holding is the lease's.
local its, _, since = holder()
if its and its ~= value then
  return {'held', redis.call('PTTL', lock), its}
end
-- Also where the reader is this lease itself: it was downgraded since this was sent.
if readers_here() > 0 then
  return {'read', last_end(readers) - ms}
end
-- The lease was given back before this arrived.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

stored_counter()
redis.call('SET', lock, '\1' .. struct.pack('<dd', since or now, number) .. value .. ARGV[4], 'PX', ttl)
-- A node that forgot its counter learns of the grants that it has missed.
raise_counter(number, ttl)
return number
