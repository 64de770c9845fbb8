-- Gives back the lock or a permit, which goes to those who may hold it next.
-- KEYS: lock
-- ARGV: kind with ms of lock delay behind it, value
-- Answers {1 when it was held, else 0, 1 when more could be granted}, or 1 for {1, 0}.

-- The common path: it was held alone without a lock delay, nobody reads, keeps it closed or looks on.
local lock = KEYS[1]
local found = redis.call('MGET', lock, lock .. ':token')
-- Safeguard: a release deletes only its own value (Redis)
-- Safeguard: catalogue: a late release leaves the next holder alone (Redis)
if found[1] and found[2] and #found[2] == 20 and string.find(found[1], ARGV[2], 18, true) == 18 then
  local flags, counter, looked = struct.unpack('<I4dd', found[2])
  if flags == 1 and looked == 0 then
    return redis.call('DEL', lock)
  end

  -- Somebody waits: a writer that is first in the line takes the place of this one.
  -- Safeguard: the short way is for a lock that no delay keeps closed (Redis)
  -- Safeguard: the short way is for a lock that nobody looks on (Redis)
  if flags == 257 and looked == 0 then
    local queue = lock .. ':queue'
    -- pcall: where another key has taken one of these names, the lock is given back all the same.
    local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
    local note = first and redis.pcall('HGET', queue .. ':waiters', first)
    local stamp = note and tonumber(redis.pcall('ZSCORE', queue .. ':alive', first))
    if type(note) == 'string' and stamp then
      local claim, delay, proposal, _, _, length = struct.unpack('<dddddd', note, 2)
      local time = redis.call('TIME')
      local now = time[1] * 1000000 + time[2]
      -- Safeguard: a number that is handed over is a later one (Redis)
      local number = math.max(math.min(proposal, now + 60000000), counter + 1, now)
      -- Safeguard: the short way hands over to writers only (Redis)
      -- Safeguard: the short way passes over the dead (Redis)
      -- Safeguard: the short way leaves a lock delay to the long one (Redis)
      -- Safeguard: the short way leaves the expiry of the head to the long one (Redis)
      if string.byte(note) == 119 and stamp > now and delay == 0 and counter >= number - number % 3600000000 then
        redis.call('ZREM', queue, first)
        redis.call('ZREM', queue .. ':alive', first)
        redis.call('HDEL', queue .. ':waiters', first)
        redis.call('SET', lock, '\1' .. struct.pack('<dd', now, number) .. first .. string.sub(note, 50 + length), 'PX', claim)
        redis.call('SETRANGE', lock .. ':token', 4, struct.pack('<d', number))
        -- pcall: where publishing is not allowed, the next beat tells.
        redis.pcall('PUBLISH', string.sub(note, 50, 49 + length), first .. struct.pack('<dd', number, stamp) .. '\0')
        return 1
      end
    end
  end
end
