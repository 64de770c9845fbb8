-- One node's vote for a reader: lets it read here, beside others, or says why not. One script, so one step for everybody
-- else.
-- Answers the number of a grant, {'held', ms or -1, value}, {'behind', ms}, {'reserved', ms}, {'undone'},
-- {'quarantined', ms} or {'stranger', stamp}.
-- It reads before it writes, as acquire.lua does.
local function line_up()
  if waiter ~= '' then
    reader_waits(waiter, waited, kept)
  end
end

-- A writer's majority and a reader's share a node, and this is where that node refuses the reader.
-- Safeguard: a node refuses a reader where a writer holds (Redlock)
local its = holder()
if its then
  local remaining = redis.call('PTTL', lock)
  line_up()
  return {'held', remaining, its}
end

-- This very attempt reads here already: a resent request gets the same answer again, and the ttl is not touched, because
-- the holder counts it from the first sending.
local known = reader(value)
if known then
  return known
end

-- For a moment after a release the lock is kept for those who were woken. Readers do not stand in each other's way, and
-- those that were woken go in: they had come before the writers that wait.
local reserved = redis.call('GET', reservation)
if reserved and reserved ~= 'readers' then
  local remaining = redis.call('PTTL', reservation)
  line_up()
  return {'reserved', remaining}
end
local woken = reserved and waiter ~= '' and redis.call('ZSCORE', waiting, waiter) == WOKEN
-- A reader does not overtake a writer that waits and came before it. When they came is told by how long they have waited,
-- on this node's clock alone.
local _, behind = writers_before(now - tonumber(waited) * 1000)
-- Safeguard: a reader does not overtake a writer that waits (Redlock)
if behind > 0 and not woken then
  line_up()
  return {'behind', behind}
end

stored = stored or stored_counter()
readers_here()
read_members(readers, reading)
if waiter ~= '' then
  redis.call('ZCARD', waiting)
end
local number = next_number(stored, now)
let_read(value, ttl, number, now, payload)
count(number, stored, now)
if waiter ~= '' then
  redis.call('ZREM', waiting, waiter)
end
tell_of_grant()
return number
