-- Takes the lock or a permit, or stands in line for it. One script, so one step for everybody else.
-- KEYS: lock, head, delay, members, notes, queue, waiters, alive, tombstone
-- ARGV: kind (w: alone, r: reader, p: permit), channel of changes, value, ttl in ms, ms of lock delay, proposed token number,
--   payload, number of permits, 1 to wait, us that it counts as alive without a beat, ms of a claim, channel of its client
-- Answers {'granted', number}; {'in line', how many are ahead, ms until it may open or -1, newest number, stamp, 1 when more
--   could be granted}; {'held', ms or -1, 1 when more could be granted}; {'permits', number of permits}; {'undone'};
--   {'format'}: another version of this library uses the name.

-- The common path: nobody holds it, waits, or reads, no delay closes it, and the attempt was not undone.
local found = redis.call('MGET', KEYS[1], KEYS[2], KEYS[9])
-- Safeguard: an acquisition finds the tombstone of its undo on the common path (Redis)
-- Safeguard: the common path is for a lock that nobody reads (Redis)
if found[2] and not found[1] and not found[3] and ARGV[1] == 'w' and string.sub(found[2], 1, 4) == '\1\0\0\0' then
  local counter, looked = struct.unpack('<dd', found[2], 5)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  -- Safeguard: no number is below the server's clock (Redis)
  -- Safeguard: the stored counter raises the token (Redis)
  local number = math.max(math.min(tonumber(ARGV[6]), now + 60000000), counter + 1, now)
  local packed = '\1' .. struct.pack('<d', number) .. ARGV[3] .. struct.pack('<d', now) .. ARGV[7]
  -- MGET hides a key of another type, which is somebody's lock: hence NX.
  -- Safeguard: a lock key of another type is not overwritten (Redis)
  if redis.call('SET', KEYS[1], packed, 'NX', 'PX', ARGV[4]) then
    local flags = '\1\0\0\0'
    if ARGV[5] ~= '0' then
      flags = '\1\0\0\1'
      redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[4] + ARGV[5])
    end
    if looked > 0 then
      -- pcall: who may not publish holds it all the same.
      redis.pcall('PUBLISH', ARGV[2], '')
      looked = looked > now and looked or 0
    end
    redis.call('SET', KEYS[2], flags .. struct.pack('<dd', number, looked), 'PX', '259200000')
    return {'granted', number}
  end
end
