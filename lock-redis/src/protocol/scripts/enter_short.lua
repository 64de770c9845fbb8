-- Takes the lock or a permit, or stands in line for it. One script, so one step for everybody else.
-- KEYS: lock
-- ARGV:
--   1: kind (w: alone, r: reader, p: permit); packed: proposed token number, ms of lock delay, number of permits, us that it
--      counts as alive without a beat, ms of a claim; the channel of its client, if it waits
--   2: value and payload
--   3: ttl in ms
-- Answers a number for a grant; {'in line', how many are ahead, ms until it may open or -1, newest number, stamp, 1 when more
--   could be granted}; {'held', ms or -1, 1 when more could be granted}; {'permits', number of permits}; {'undone'};
--   {'format'}: another version of this library uses the name.

-- The common path: nobody holds it, waits, reads, keeps it closed or looks on, and no attempt was undone of late. An error where
-- an earlier version of this library keeps a hash.
local lock = KEYS[1]
local head = lock .. ':token'
local packed = redis.call('GET', head)
local is_alone = string.sub(ARGV[1], 1, 1) == 'w'
local asked, asked_delay = struct.unpack('<dd', ARGV[1], 2)
-- A name of which nothing is there has what a head of it would say. The lock key is looked at last.
-- Safeguard: the common path starts a name only where nothing of it is there (Redis)
if not packed and is_alone and redis.call('EXISTS', lock .. ':delay', lock .. ':readers', lock .. ':reading', lock .. ':queue',
    lock .. ':queue:waiters', lock .. ':queue:alive', lock .. ':undone:' .. string.sub(ARGV[2], 1, 32)) == 0 then
  packed = '\1\0\0\0' .. struct.pack('<dd', 0, 0)
end
if packed and #packed == 20 and is_alone and asked_delay == 0 then
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
    if redis.call('SET', lock, '\1' .. struct.pack('<dd', now, number) .. ARGV[2], 'NX', 'PX', ARGV[3]) then
      -- Its expiry is set anew by the first grant of each hour, and is of three days.
      -- Safeguard: a head that is in use does not expire (Redis)
      if counter < number - number % 3600000000 then
        redis.call('SET', head, '\1\0\0\0' .. struct.pack('<dd', number, 0), 'PX', '259200000')
      else
        redis.call('SETRANGE', head, 4, struct.pack('<d', number))
      end
      return number
    end
  end
end
