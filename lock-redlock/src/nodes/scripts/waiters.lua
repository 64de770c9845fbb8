-- Those who wait here: writers and readers, each in the order in which they came; which writers keep later readers out; and
-- for whom the lock is kept a moment after a release.
local waiters, waiting, reservation = lock .. ':waiters', lock .. ':waiting', lock .. ':reserved'
local writers, writing = lock .. ':writers', lock .. ':writing'
-- The place of a waiting reader whose turn it is.
local WOKEN = '-1'

-- A writer waits, since `waited` ms: readers who come later wait for it, for `kept` ms. When it came stays. Both keys have been
-- read.
local function writer_waits(waiter, waited, kept)
  -- Else those of the dead would stay for as long as others go on waiting, where no reader ever comes to look.
  remove_ended(writers, writing)
  redis.call('ZADD', writers, digits(ms + tonumber(kept)), waiter)
  redis.call('HSETNX', writing, waiter, digits(now - tonumber(waited) * 1000))
  keep_until_last_end(writers, writing)
end

local function writer_gone(waiter)
  redis.call('HDEL', writing, waiter)
  return redis.call('ZREM', writers, waiter) == 1
end

-- Of the writers that wait: when the first of them came (us), and for how many ms those that came no later than `came` keep
-- readers out unless they look again, 0 for none.
local function writers_before(came)
  remove_ended(writers, writing)
  local first, left, all = nil, 0, redis.call('ZRANGE', writers, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    local theirs = tonumber(redis.call('HGET', writing, all[at]) or '0')
    first = math.min(first or theirs, theirs)
    if theirs <= came then
      left = math.max(left, tonumber(all[at + 1]) - ms, 1)
    end
  end
  return first, left
end

-- A reader waits. Its place is when it came on this node's clock, as for writers that keep readers out.
local function reader_waits(waiter, waited, kept)
  redis.call('ZADD', waiting, digits(now - tonumber(waited) * 1000), waiter)
  redis.call('PEXPIRE', waiting, kept)
end

-- A writer waits. Its place is when it came on this node's clock, and the first one that it was given: what a later
-- request takes to arrive does not move it.
local function writer_lines_up(waiter, waited, kept)
  -- Safeguard: the line is by how long each has waited, on the node's clock (Redlock)
  redis.call('ZADD', waiters, 'NX', digits(now - tonumber(waited) * 1000), waiter)
  redis.call('PEXPIRE', waiters, kept)
end
