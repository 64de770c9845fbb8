-- Joins this node to the lease of a reader that a majority of the others keeps, where no writer holds the lock.
-- ARGV: value, ttl in ms, token of the grant, payload, stamp
-- Answers {'granted', number of this holding}, {'held', ms or -1, value}, {'undone'} or {'stranger', stamp}.
-- A node in quarantine joins, too: whoever else it may have voted for has no majority while this lease has one.
local value, ttl, number = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not is_member then
  return {'stranger', stamp}
end

local mine = false
if redis.call('EXISTS', lock) == 1 then
  -- A key of another type is a foreign holder, not an error: hence pcall.
  local holder = redis.pcall('GET', lock)
  -- Safeguard: a reader joins a node only where no writer holds (Redlock)
  if holder ~= value then
    return {'held', redis.call('PTTL', lock), type(holder) == 'string' and holder or ''}
  end
  mine = true
end
-- The lease was given back before this arrived.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end

read_members(readers, reading)
redis.call('HLEN', token)
local _, since = reader(value)
if mine then
  -- From the time when this lease was a writer's: the node missed the downgrade.
  since = since or redis.call('HGET', token, 'since')
  redis.call('DEL', lock)
  redis.call('HDEL', token, 'held', 'value', 'payload', 'since')
end
readers_here()
let_read(value, ttl, number, since or digits(now), ARGV[4])
-- A node that forgot its counter learns of the grants that it has missed.
raise_counter(number, ttl)
return {'granted', number}
