-- The first script on each connection: is this the process that was a member of the deployment all along? One that was
-- restarted may have forgotten whom it voted for, so it gives no vote until every lease of that time has ended.
-- KEYS: member, quarantine
-- ARGV: ms of a quarantine
-- Answers 1 for a known process, 0 for one that was sent into quarantine.
local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('GET', KEYS[1]) == id then
  return 1
end
redis.call('SET', KEYS[2], id, 'PX', ARGV[1])
redis.call('SET', KEYS[1], id)
return 0
