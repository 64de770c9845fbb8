-- Joins this node to the lease of a reader that a majority of the others keeps, where no writer holds the lock.
-- ARGV: value, ttl in ms, token of the grant, payload, stamp
-- Answers the number of this holding, {'held', ms or -1, value}, {'undone'} or {'stranger', stamp}.
-- A node in quarantine joins, too: whoever else it may have voted for has no majority while this lease has one.
local ttl, number = tonumber(ARGV[2]), tonumber(ARGV[3])
if not is_member then
  return {'stranger', stamp}
end

-- From the time when this lease was a writer's, where the node missed the downgrade.
local its, _, since = holder()
-- Safeguard: a reader joins a node only where no writer holds (Redlock)
if its and its ~= value then
  return {'held', redis.call('PTTL', lock), its}
end
-- The lease was given back before this arrived.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

read_members(readers, reading)
stored_counter()
local _, read_since = reader(value)
readers_here()
redis.call('DEL', lock)
let_read(value, ttl, number, read_since or since or now, ARGV[4])
-- A node that forgot its counter learns of the grants that it has missed.
raise_counter(number, ttl)
return number
