-- Takes the lock, which whoever comes tries to set: clients of this library, and others by SET NX PX.
-- KEYS: lock, record, tombstone
-- ARGV: value, ttl in ms, proposed token number, payload, us for which a release is to be published to one that waits (0: it
--   does not wait), channel of changes
-- Answers a number for a grant; {'held', ms or -1, 0}; {'undone'}; {'format'}: somebody else uses the key of the record.
local lock, record, value = KEYS[1], KEYS[2], ARGV[1]
local found = redis.call('MGET', lock, record, KEYS[3])
-- MGET hides a key of another type: reading it by its type raises the error with nothing written.
local packed = found[2] or redis.call('GET', record)
if packed and string.byte(packed) ~= 2 then
  return {'format'}
end
local counter, waiting, looked = 0, 0, 0
if packed then
  counter = struct.unpack('<d', packed, 2)
  waiting, looked = struct.unpack('<dd', packed, 50)
end

local is_own = found[1] == value
-- It holds the lock already: a resent request gets the same grant. Its client counts the whole ttl from the first sending.
-- Safeguard: a resent request arms the whole ttl (Redis, plain)
if is_own and packed and string.sub(packed, 10, 41) == value then
  redis.call('PEXPIRE', lock, ARGV[2])
  return counter
end
-- The undo of this attempt was here before it: it must not come back.
-- Safeguard: an acquisition finds the tombstone of its undo (Redis, plain)
if found[3] then
  return {'undone'}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Without its record nobody knows by which number it holds, and nobody was told of that: it gets another one.
-- Safeguard: a lock key of whatever type is not overwritten (Redis, plain)
if is_own and redis.call('SET', lock, value, 'XX', 'PX', ARGV[2]) or redis.call('SET', lock, value, 'NX', 'PX', ARGV[2]) then
  -- Safeguard: no number is below the server's clock (Redis, plain)
  -- Safeguard: the stored counter raises the token (Redis, plain)
  local number = math.max(math.min(tonumber(ARGV[3]), now + 60000000), counter + 1, now)
  if looked > now then
    -- pcall: who may not publish holds it all the same.
    redis.pcall('PUBLISH', ARGV[6], '')
  end
  -- Safeguard: those who go on waiting are told of the next release (Redis, plain)
  local times = struct.pack('<ddd', now, waiting > now and waiting or 0, looked > now and looked or 0)
  redis.call('SET', record, '\2' .. struct.pack('<d', number) .. value .. times .. ARGV[4], 'PX', '259200000')
  return number
end
local waits = tonumber(ARGV[5])
-- Not each time that a waiter looks again.
-- Safeguard: a waiter is noted where its release is found (Redis, plain)
if waits > 0 and waiting < now + waits / 2 then
  packed = packed or '\2' .. string.rep('\0', 64)
  packed = string.sub(packed, 1, 49) .. struct.pack('<d', now + waits) .. string.sub(packed, 58)
  redis.call('SET', record, packed, 'PX', '259200000')
end
return {'held', redis.call('PTTL', lock), 0}
