-- Whether this server votes, and the number that it gives to a grant.
-- KEYS: ..., note that this waiter is gone, run, quarantine, record of the deployment, stamp
-- ARGV: value, ttl in ms, proposed token number, payload, channel of changes; of one that waits, else '': waiter, ms since
--       it came, ms to keep the waiters, ms to keep the intent of a writer; stamp
local value, ttl, payload, waiter, waited = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[6], ARGV[7]

-- Safeguard: a vote is for the member that it was asked as (Redlock)
if not is_member then
  return {'stranger', stamp}
end
-- A restarted server has forgotten for whom it voted, or has an old copy of it, so it gives no vote until every lease of
-- that time has ended. Each vote looks: a proxy may keep a client's connection while the server behind it restarts.
local standing = redis.call('MGET', KEYS[12], KEYS[13])
if standing[1] ~= 'any' then
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  -- Safeguard: each vote asks whether the server has restarted (Redlock)
  if standing[1] ~= run then
    local max_ttl = redis.call('HGET', KEYS[14], 'max_ttl')
    redis.call('SET', KEYS[13], '', 'PX', max_ttl)
    redis.call('SET', KEYS[12], run)
    return {'quarantined', tonumber(max_ttl)}
  end
end
-- Safeguard: a node that forgot is in quarantine (Redlock)
if standing[2] then
  return {'quarantined', redis.call('PTTL', KEYS[13])}
end

-- The undo of this attempt was here before its vote, so the attempt must get nothing. Nor must its waiter be enrolled: nobody
-- would ever remove the entry. The undo of a whole attempt holds for all its rounds.
-- Safeguard: what comes after its undo lines nobody up (Redlock)
if redis.call('EXISTS', tombstone, KEYS[11]) > 0 then
  return {'undone'}
end

