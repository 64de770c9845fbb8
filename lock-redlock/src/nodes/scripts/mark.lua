-- Makes this server a member of a deployment, if its stamp is still the one that was seen.
-- KEYS: stamp, run, quarantine, record of the deployment
-- ARGV: new stamp, stamp that was seen, id, generation, previous generation, members, replaced members, max_ttl in ms,
--       quarantine ('on' or 'off'), for how many ms it gives no vote, or '' for a server that is a member already and has
--       forgotten nothing
-- Answers 1 when it is the member now, 0 when its stamp is another.
local stamp = redis.call('GET', KEYS[1]) or ''
if stamp == ARGV[1] then
  -- This request was here before.
  return 1
end
if stamp ~= ARGV[2] then
  return 0
end
local id, generation, previous, members, replaced, max_ttl, quarantine, absence = unpack(ARGV, 3)
if absence ~= '' then
  -- A quarantine that lasts longer stays: what the server may have forgotten before is not pardoned by what is asked now.
  if tonumber(absence) > 0 and redis.call('PTTL', KEYS[3]) < tonumber(absence) then
    redis.call('SET', KEYS[3], '', 'PX', absence)
  end
  -- A server that never forgets may be any process.
  redis.call('SET', KEYS[2], quarantine == 'on' and string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or 'any')
end
redis.call('HSET', KEYS[4], 'id', id, 'generation', generation, 'previous', previous)
redis.call('HSET', KEYS[4], 'members', members, 'replaced', replaced)
redis.call('HSET', KEYS[4], 'max_ttl', max_ttl, 'quarantine', quarantine)
redis.call('SET', KEYS[1], ARGV[1])
return 1
