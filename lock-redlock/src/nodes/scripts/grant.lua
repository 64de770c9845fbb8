-- What a vote for a writer shares between the common path and the long one.
-- KEYS, ARGV: those of vote.lua

-- max(stored + 1, proposal), so that nodes that nothing disturbed agree.
local function next_number(stored, now)
  -- A client whose clock is ahead cannot push the numbers away for good.
  local number = math.min(tonumber(ARGV[3]), now + 60000000)
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
  local ttl = tonumber(ARGV[2])
  if stored and stored >= number - number % 3600000000 and ttl <= 86400000 then
    redis.call('SETRANGE', KEYS[2], 0, number)
  else
    redis.call('SET', KEYS[2], number, 'PX', math.floor(math.max(number - now, 0) / 1000) + 259200000 + ttl)
  end
end

-- Gives the lock to this attempt, and tells those who look on. pcall: a user who may not publish holds it all the same.
local function take(number, stored, now)
  redis.call('SET', KEYS[1], '\1' .. struct.pack('<dd', now, number) .. ARGV[1] .. ARGV[4], 'PX', ARGV[2])
  count(number, stored, now)
  redis.pcall('PUBLISH', ARGV[5], '')
end
