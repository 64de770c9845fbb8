
-- The common path of a vote: the server is the member, was not restarted, and nobody holds the lock, reads, waits, or undid this
-- attempt.
local standing = redis.call('MGET', 'redlock:member', 'redlock:run', lock .. ':token')
local stored = tonumber(standing[3] or '')
-- Safeguard: the common path is for a lock that nobody else uses (Redlock)
if stored and standing[1] == ARGV[4] and standing[2]
    and redis.call('EXISTS', lock, lock .. ':undone:' .. value, gone, lock .. ':readers', lock .. ':reserved',
      lock .. ':waiters', lock .. ':writers', 'redlock:quarantine') == 0 then
  local info = standing[2] ~= 'any' and redis.call('INFO', 'server')
  -- Safeguard: the common path asks whether the server has restarted (Redlock)
  local at = info and string.find(info, 'run_id:' .. standing[2] .. '\r', 1, true)
  if at or not info then
    -- Redis before 7.0 does not say the time there.
    local now = at and tonumber(string.match(info, 'server_time_usec:(%d+)', at) or '')
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local number = next_number(stored, now)
    take(number, stored, now)
    return number
  end
end

