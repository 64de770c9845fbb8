-- Gives the lock back, if it is this attempt's, and tells those who wait for it.
-- KEYS: lock; record, where somebody is to be told; tombstone, where one may be left
-- ARGV: value, ms to keep a tombstone (0: none; else it is an undo), channel of releases, channel of changes; for a forced
--   release, which is of one grant, packed number and value
-- Answers {1 when it was held, else 0, 0}.
local found = redis.call('MGET', KEYS[1], KEYS[2] or KEYS[1])
-- Safeguard: a release deletes only its own value (Redis, plain)
local is_own = found[1] == ARGV[1]
-- Safeguard: a forced release compares the number (Redis, plain)
if ARGV[5] and not (is_own and found[2] and string.sub(found[2], 2, 41) == ARGV[5]) then
  return {0, 0}
end
-- The first write: a server without memory for a tombstone still takes the lock away.
if is_own then
  redis.call('DEL', KEYS[1])
end
-- What was sent twice may come once more, so the tombstone is left also where something was found.
-- Safeguard: an undo leaves its tombstone also where it gave the lock back (Redis, plain)
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[3], '', 'PX', ARGV[2])
end
local packed = is_own and KEYS[2] and found[2]
if packed and string.byte(packed) == 2 then
  local waiting, looked = struct.unpack('<dd', packed, 50)
  local times = (waiting > 0 or looked > 0) and redis.call('TIME')
  local now = times and times[1] * 1000000 + times[2]
  -- pcall: where publishing is not allowed, those who wait and look on look again by themselves.
  -- Safeguard: a release tells those who wait (Redis, plain)
  if times and waiting > now then
    redis.pcall('PUBLISH', ARGV[3], '')
  end
  if times and looked > now then
    redis.pcall('PUBLISH', ARGV[4], '')
  end
end
return {is_own and 1 or 0, 0}
