-- Extends the lease, if it is held by that grant: another grant of the same attempt, which was sent twice, is another holding.
-- KEYS: lock, record
-- ARGV: value, packed number and value, ttl in ms
-- Answers 1 when it was extended, else 0.
local found = redis.call('MGET', KEYS[1], KEYS[2])
-- Safeguard: a renewal extends only its own value (Redis, plain)
if found[1] ~= ARGV[1] then
  return 0
end
if found[2] then
  -- Safeguard: a renewal is of one grant (Redis, plain)
  if string.byte(found[2]) == 2 and string.sub(found[2], 2, 41) ~= ARGV[2] then
    return 0
  end
  -- The record outlives a lock that is held for days.
  redis.call('PEXPIRE', KEYS[2], '259200000')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
