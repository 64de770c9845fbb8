-- Gives back the lock or a permit, which goes to those who may hold it next.
-- KEYS: lock, head, delay, members, notes, queue, waiters, alive
-- ARGV: kind, channel of changes, value, ms of lock delay
-- Answers {1 when it was held, else 0, 1 when more could be granted}.

-- The common path: it was held alone, nobody waits, and nobody looks on.
local found = redis.call('MGET', KEYS[1], KEYS[2])
-- Safeguard: a release deletes only its own value (Redis)
-- Safeguard: catalogue: a late release leaves the next holder alone (Redis)
if found[1] and found[2] and string.sub(found[1], 10, 41) == ARGV[3] and ARGV[4] == '0'
  and string.sub(found[2], 1, 2) == '\1\0' and string.sub(found[2], 13) == '\0\0\0\0\0\0\0\0' then
  redis.call('DEL', KEYS[1])
  return {1, 0}
end
