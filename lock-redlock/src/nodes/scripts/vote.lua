-- Whether this server votes, and what its clock says. MGET takes a key of another type for none: who reads such a key by its type
-- has the error.
local standing = redis.call('MGET', 'redlock:member', 'redlock:run', 'redlock:quarantine', lock .. ':token')
local stamp, run = standing[1] or '', standing[2]
-- Safeguard: a vote is for the member that it was asked as (Redlock)
if stamp ~= ARGV[4] then
  return {'stranger', stamp}
end
-- A restarted server has forgotten for whom it voted, or has an old copy of it, so it gives no vote until every lease of
-- that time has ended. Each vote looks: a proxy may keep a client's connection while the server behind it restarts.
-- A server that never forgets may be any process.
local info = run ~= 'any' and redis.call('INFO', 'server')
local at = info and string.find(info, 'run_id:' .. (run or '') .. '\r', 1, true)
-- Safeguard: each vote asks whether the server has restarted (Redlock)
if info and not at then
  local max_ttl = redis.call('HGET', 'redlock:deployment', 'max_ttl')
  redis.call('SET', 'redlock:quarantine', '', 'PX', max_ttl)
  redis.call('SET', 'redlock:run', string.match(info, 'run_id:(%x+)'))
  return {'quarantined', tonumber(max_ttl)}
end
-- Safeguard: a node that forgot is in quarantine (Redlock)
if standing[3] then
  return {'quarantined', redis.call('PTTL', 'redlock:quarantine')}
end

-- In microseconds and in whole milliseconds. Redis before 7.0 does not say the time there.
local now = at and tonumber(string.match(info, 'server_time_usec:(%d+)', at) or '')
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local ms = math.floor(now / 1000)
-- The counter of this node; nil where it has none, or where the key has another type.
local stored = tonumber(standing[4] or '')

