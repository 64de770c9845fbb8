-- Takes the lock or a permit, or stands in line for it. One script, so one step for everybody else.
-- KEYS: lock, head, delay, members, notes, queue, waiters, alive, tombstone
-- ARGV: kind (w: alone, r: reader, p: permit), channel of changes, value and payload, ttl in ms, packed: proposed token number,
--   ms of lock delay, number of permits, us that it counts as alive without a beat, ms of a claim; and the channel of its client
--   to wait
-- Answers a number for a grant; {'in line', how many are ahead, ms until it may open or -1, newest number, stamp, 1 when more
--   could be granted}; {'held', ms or -1, 1 when more could be granted}; {'permits', number of permits}; {'undone'};
--   {'format'}: another version of this library uses the name.

-- The common path: nobody holds it, waits, reads, keeps it closed or looks on, and no attempt was undone of late. An error where
-- an earlier version of this library keeps a hash.
local packed = redis.call('GET', KEYS[2])
local asked, asked_delay = struct.unpack('<dd', ARGV[5])
-- A name of which nothing is there has what a head of it would say. The lock key is looked at last.
-- Safeguard: the common path starts a name only where nothing of it is there (Redis)
if not packed and ARGV[1] == 'w' and redis.call('EXISTS', unpack(KEYS, 3)) == 0 then
  packed = '\1\0\0\0' .. struct.pack('<dd', 0, 0)
end
if packed and #packed == 20 and ARGV[1] == 'w' and asked_delay == 0 then
  local flags, counter, looked = struct.unpack('<I4dd', packed)
  -- Safeguard: the common path is for a lock that nobody reads (Redis)
  if flags == 1 and looked == 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    -- Safeguard: no number is below the server's clock (Redis)
    -- Safeguard: the stored counter raises the token (Redis)
    local number = math.max(math.min(asked, now + 60000000), counter + 1, now)
    -- Whoever holds it, by a key of whatever type.
    -- Safeguard: a lock key of another type is not overwritten (Redis)
    if redis.call('SET', KEYS[1], '\1' .. struct.pack('<dd', now, number) .. ARGV[3], 'NX', 'PX', ARGV[4]) then
      -- Its expiry is set anew by the first grant of each hour, and is of three days.
      -- Safeguard: a head that is in use does not expire (Redis)
      if counter < number - number % 3600000000 then
        redis.call('SET', KEYS[2], '\1\0\0\0' .. struct.pack('<dd', number, 0), 'PX', '259200000')
      else
        redis.call('SETRANGE', KEYS[2], 4, struct.pack('<d', number))
      end
      return number
    end
  end
end
