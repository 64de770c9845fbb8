-- What a vote is asked with, and what the common path of a writer's shares with the long one.
-- KEYS: lock. Its other keys begin with it, and are not passed one by one: a node is one server, and no cluster, which has to
--   know them to find the slot.
-- ARGV: value and payload, ttl in ms, packed: proposed token number, and of one that waits ms since it came, ms to keep the waiters,
--   ms to keep the intent of a writer, and its name; stamp
local lock, value, payload, ttl = KEYS[1], string.sub(ARGV[1], 1, 32), string.sub(ARGV[1], 33), tonumber(ARGV[2])
local proposal, waited, kept, intent_kept = struct.unpack('<dddd', ARGV[3])
local waiter = string.sub(ARGV[3], 33)
-- Where it says that this waiter is gone. An attempt that does not wait has only its own tombstone to look for.
local gone = lock .. ':undone:' .. (waiter == '' and value or waiter)

-- max(stored + 1, proposal), so that nodes that nothing disturbed agree.
local function next_number(stored, now)
  -- A client whose clock is ahead cannot push the numbers away for good.
  local number = math.min(proposal, now + 60000000)
  -- A client whose clock is behind must not go below what was given out and lost here, nor below what another server gave
  -- out of which this one's counter does not know. Within a quarter of a second its proposal stands, so that the nodes agree.
  -- Safeguard: a number is not below the server's clock (Redlock)
  if number < now - 250000 then
    number = now
  end
  return stored and math.max(number, stored + 1) or number
end

-- Notes that `number` is given out now. The counter goes days after the clock has passed it, so what starts from the clock
-- again is above it; its expiry is set anew by the first grant of each hour.
local function count(number, stored, now)
  if stored and stored >= number - number % 3600000000 and ttl <= 86400000 then
    redis.call('SETRANGE', lock .. ':token', 0, number)
  else
    local expires = math.floor(math.max(number - now, 0) / 1000) + 259200000 + ttl
    redis.call('SET', lock .. ':token', number, 'PX', expires)
  end
end

-- For those who look on. pcall: a user who may not publish holds it all the same.
local function tell_of_grant()
  redis.pcall('PUBLISH', lock .. ':changed', '')
end

-- Gives the lock to this attempt alone.
local function take(number, stored, now)
  redis.call('SET', lock, '\1' .. struct.pack('<dd', now, number) .. ARGV[1], 'PX', ARGV[2])
  count(number, stored, now)
  tell_of_grant()
end
