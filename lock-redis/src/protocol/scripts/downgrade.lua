-- Makes a reader of one that holds the lock alone, in one step: no writer comes between. Readers at the head of the queue
-- come in beside it.
-- KEYS: lock
-- ARGV: kind, value, ttl in ms, ms of lock delay
-- Answers {1 when this attempt reads now, else 0, 1 when more could be granted}.
local value, ttl, delay = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if is_foreign then
  return {0, 0}
end
read_types(redis.call)
-- Safeguard: a downgrade is the holder's own (Redis)
if not is_own(value) then
  -- A resent request finds what the first one made.
  return {number_of(value, delay) and 1 or 0, 0}
end
local number, since = struct.unpack('<d', held, 10), struct.unpack('<d', held, 2)
redis.call('HSET', notes, value, struct.pack('<dddd', number, since, delay, 0) .. string.sub(held, 50))
redis.call('ZADD', members, digits(ms + ttl + delay), value)
keep_members()
redis.call('DEL', lock)
held, shared = false, 1
-- Safeguard: a downgrade ends the writer's lock delay (Redis)
if redis.call('GET', delayed) == value then
  redis.call('DEL', delayed)
end
local more = promote()
announce()
save_head()
return {1, more}
