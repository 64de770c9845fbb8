-- Makes this process a member of a new deployment.
-- KEYS: member
-- Answers 1 when it is one now, 0 when another process was.
local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('SET', KEYS[1], id, 'NX')
return redis.call('GET', KEYS[1]) == id and 1 or 0
