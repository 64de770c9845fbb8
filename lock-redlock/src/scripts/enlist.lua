-- Makes this server a member of a deployment, if its stamp is still the one that was seen.
-- KEYS: stamp, run, quarantine, record of the deployment
-- ARGV: new stamp, stamp that was seen, id, generation, members, max_ttl in ms, quarantine ('on' or 'off'), for how many ms
--       it gives no vote
-- Answers 1 when it is the member now, 0 when its stamp is another.
local stamp = redis.call('GET', KEYS[1]) or ''
if stamp == ARGV[1] then
  -- This request was here before.
  return 1
end
if stamp ~= ARGV[2] then
  return 0
end
-- A quarantine that lasts longer stays: what the server may have forgotten before is not pardoned by what is asked now.
local absence = tonumber(ARGV[8])
if absence > 0 and redis.call('PTTL', KEYS[3]) < absence then
  redis.call('SET', KEYS[3], '', 'PX', ARGV[8])
end
local id, generation, members, max_ttl, quarantine = unpack(ARGV, 3, 7)
redis.call('HSET', KEYS[4], 'id', id, 'generation', generation, 'members', members)
redis.call('HSET', KEYS[4], 'max_ttl', max_ttl, 'quarantine', quarantine)
-- A server that never forgets may be any process.
redis.call('SET', KEYS[2], quarantine == 'on' and string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or 'any')
redis.call('SET', KEYS[1], ARGV[1])
return 1
