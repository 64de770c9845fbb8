-- Whether this node votes, and the number that it gives to a grant.
-- KEYS: ..., note that this waiter is gone, member, quarantine
-- ARGV: value, ttl in ms, proposed token number, payload, channel of changes, ms of a quarantine or 0 for none; of one that
--       waits, else '': waiter, its place, ms since it came, ms to keep the waiters, ms to keep the intent of a writer
local member, quarantine = KEYS[12], KEYS[13]
local value, ttl, payload, waiter, place, waited = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[7], ARGV[8], ARGV[9]

if ARGV[6] ~= '0' then
  local state = redis.call('MGET', member, quarantine)
  if not state[1] then
    -- Whoever emptied the node (a flush needs no restart), it has forgotten whom it voted for.
    redis.call('SET', quarantine, '', 'PX', ARGV[6])
    redis.call('SET', member, string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'))
    return {'quarantined', tonumber(ARGV[6])}
  end
  if state[2] then
    return {'quarantined', redis.call('PTTL', quarantine)}
  end
end

-- The undo of this attempt was here before it: it must not come back. Nor must it line up, before anything else that it
-- may be told: nobody would ever take that place, and nobody would clear it away. The undo of the whole attempt says so of
-- all its rounds, this one and those before.
if redis.call('EXISTS', tombstone, KEYS[11]) > 0 then
  return {'undone'}
end

-- max(stored + 1, proposal), so that nodes that nothing disturbed agree.
local function number_of_grant()
  -- A client whose clock is ahead cannot push the numbers away for good.
  local number = math.min(tonumber(ARGV[3]), now + 60000000)
  local stored = tonumber(redis.call('HGET', token, 'counter') or '')
  if stored then
    return math.max(number, stored + 1)
  end
  -- A client whose clock is behind must not start below what was given out and lost here. Within a quarter of a second
  -- its proposal stands, so that the nodes agree on the first grant of a name, too.
  return number < now - 250000 and now or number
end

-- For those who look on. pcall: a user who may not publish holds it all the same.
local function tell_of_grant()
  redis.pcall('PUBLISH', ARGV[5], '')
end
