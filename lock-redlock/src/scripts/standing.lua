-- Which process this is, which one the deployment knows, and for how long it is in quarantine yet.
-- KEYS: member, quarantine
-- Answers {run id, run id of the known process or '', ms or a negative number}.
local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return {id, redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[2])}
