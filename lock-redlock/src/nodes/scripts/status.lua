-- What this server says of itself.
-- KEYS: stamp, run, quarantine, record of the deployment
-- Answers {run id, stamp or '', ms of quarantine or a negative number, run id that is known as this member or '', then id, generation, previous generation, members,
-- replaced members, max_ttl and quarantine of the record, each of these '' where there is none}.
local fields = {'id', 'generation', 'previous', 'members', 'replaced', 'max_ttl', 'quarantine'}
local record = redis.call('HMGET', KEYS[4], unpack(fields))
for at = 1, #fields do
  record[at] = record[at] or ''
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return {run, redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[3]), redis.call('GET', KEYS[2]) or '', unpack(record)}
