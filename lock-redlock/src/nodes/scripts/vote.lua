-- Whether this server votes, and the number that it gives to a grant.
-- Safeguard: a vote is for the member that it was asked as (Redlock)
if not is_member then
  return {'stranger', stamp}
end
-- A restarted server has forgotten for whom it voted, or has an old copy of it, so it gives no vote until every lease of
-- that time has ended. Each vote looks: a proxy may keep a client's connection while the server behind it restarts.
local standing = redis.call('MGET', 'redlock:run', 'redlock:quarantine')
if standing[1] ~= 'any' then
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  -- Safeguard: each vote asks whether the server has restarted (Redlock)
  if standing[1] ~= run then
    local max_ttl = redis.call('HGET', 'redlock:deployment', 'max_ttl')
    redis.call('SET', 'redlock:quarantine', '', 'PX', max_ttl)
    redis.call('SET', 'redlock:run', run)
    return {'quarantined', tonumber(max_ttl)}
  end
end
-- Safeguard: a node that forgot is in quarantine (Redlock)
if standing[2] then
  return {'quarantined', redis.call('PTTL', 'redlock:quarantine')}
end

-- The undo of this attempt was here before its vote, so the attempt must get nothing. Nor must its waiter be enrolled: nobody
-- would ever remove the entry. The undo of a whole attempt holds for all its rounds.
-- Safeguard: what comes after its undo lines nobody up (Redlock)
if redis.call('EXISTS', tombstone, gone) > 0 then
  return {'undone'}
end

