-- What this server says of itself.
-- KEYS: stamp, run, quarantine, record of the deployment
-- Answers {run id, stamp or '', ms of quarantine or a negative number, id, generation, members, max_ttl, quarantine},
-- each of the last five '' where there is no record.
local record = redis.call('HMGET', KEYS[4], 'id', 'generation', 'members', 'max_ttl', 'quarantine')
for at = 1, 5 do
  record[at] = record[at] or ''
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return {run, redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[3]), unpack(record)}
