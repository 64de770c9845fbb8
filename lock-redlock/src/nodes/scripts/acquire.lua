-- One node's vote for a writer: takes the lock here, or says who has it. One script, so one step for everybody else.
-- Answers the number of a grant, {'held', ms or -1, value}, {'read', ms}, {'reserved', ms}, {'undone'},
-- {'quarantined', ms} or {'stranger', stamp}.
-- It reads before it writes: an error can then only come from the first write, and means that nothing was written (but
-- that what had ended before was removed).
local function line_up()
  if waiter ~= '' then
    read_members(writers, writing)
    writer_lines_up(waiter, waited, kept)
    -- Readers that come from now on wait until it had its turn, does not wait any more, or does not look any more.
    writer_waits(waiter, waited, intent_kept)
  end
end

if its then
  local remaining = redis.call('PTTL', lock)
  line_up()
  return {'held', remaining, its}
end

-- A writer's majority and a reader's share a node, and this is where that node refuses the writer.
-- Safeguard: a node refuses a writer where somebody reads (Redlock)
if readers_here() > 0 then
  line_up()
  return {'read', last_end(readers) - ms}
end

-- For a moment after a release the lock is kept for those who were woken.
local reserved = redis.call('GET', reservation)
if reserved and reserved ~= waiter then
  local remaining = redis.call('PTTL', reservation)
  line_up()
  return {'reserved', remaining}
end

stored = stored or stored_counter()
if waiter ~= '' then
  redis.call('ZCARD', waiters)
  read_members(writers, writing)
end
local number = next_number(stored, now)
take(number, stored, now)
if waiter ~= '' then
  redis.call('ZREM', waiters, waiter)
  writer_gone(waiter)
end
if reserved then
  redis.call('DEL', reservation)
end
return number
