-- Gives back the lock or a permit, which goes to those who may hold it next.
-- KEYS: lock
-- ARGV: kind with ms of lock delay behind it, value
-- Answers {1 when it was held, else 0, 1 when more could be granted}, or 1 for {1, 0}.

-- The common path: it was held alone without a lock delay, nobody waits, and nobody looks on.
local found = redis.call('MGET', KEYS[1], KEYS[1] .. ':token')
-- Safeguard: a release deletes only its own value (Redis)
-- Safeguard: catalogue: a late release leaves the next holder alone (Redis)
if found[1] and found[2] and #found[2] == 20 and string.find(found[1], ARGV[2], 18, true) == 18 then
  local flags, _, looked = struct.unpack('<I4dd', found[2])
  if flags == 1 and looked == 0 then
    return redis.call('DEL', KEYS[1])
  end
end
