local kind, value, payload, ttl = string.sub(ARGV[1], 1, 1), string.sub(ARGV[2], 1, 32), string.sub(ARGV[2], 33), tonumber(ARGV[3])
local proposal, delay, of, span, claim = struct.unpack('<ddddd', ARGV[1], 2)
local channel = string.sub(ARGV[1], 42)
local stamp = digits(now + span)

if is_foreign then
  return {'format'}
end
-- Safeguard: every key is read by its type before a grant is written (Redis)
read_types(redis.call)

local function granted()
  local number = number_of(value, delay)
  if number then
    -- Its client counts the whole ttl from the first sending; what was handed over has less.
    -- Safeguard: a resent request arms the whole ttl (Redis)
    arm(value, ttl, delay)
    save_head()
    return number
  end
end

local again = granted()
if again then
  return again
end
-- The undo of this attempt was here before it: it must not come back.
-- Safeguard: an acquisition finds the tombstone of its undo (Redis)
if redis.pcall('GET', tombstone(value)) == '' then
  return {'undone'}
end
-- Before the dead go: whoever speaks is alive.
local is_placed = redis.call('ZSCORE', queue, value)
if is_placed then
  redis.call('ZADD', alive, stamp, value)
end
sweep()
local more = promote()
again = granted()
if again then
  return again
end

if not is_placed then
  if is_semaphore then
    local first = redis.call('ZRANGEBYSCORE', members, digits(ms), '+inf', 'LIMIT', 0, 1)[1]
    local waiter = redis.call('ZRANGE', queue, 0, 0)[1]
    local note = first and redis.call('HGET', notes, first)
    local named = note and struct.unpack('<d', note, 25)
    note = not named and waiter and redis.call('HGET', waiters, waiter)
    named = named or note and struct.unpack('<d', note, 34)
    -- All who hold or wait have named the same number.
    -- Safeguard: all who hold or wait name one number of permits (Redis)
    if named and named ~= of then
      save_head()
      return {'permits', named}
    end
  end
  local left = closed_to(kind, value, of)
  -- Safeguard: a reader does not overtake a writer that waits (Redis)
  if not left and redis.call('EXISTS', queue) == 0 then
    grant(kind, value, ttl, delay, proposal, of, payload)
    announce()
    save_head()
    return counter
  end
  if channel == '' then
    save_head()
    return {'held', left or 0, more}
  end
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
  redis.call('HSET', waiters, value, kind
    .. struct.pack('<dddddd', claim, delay, proposal, now, of, #channel) .. channel .. payload)
  redis.call('ZADD', queue, digits(last + 1), value)
  redis.call('ZADD', alive, stamp, value)
  waiting = is_semaphore and waiting or 1
  announce()
end
keep_line(span)
save_head()
local ahead = redis.call('ZRANK', queue, value)
return {'in line', ahead, ahead == 0 and closed_to(kind, value, of) or -1, newest(), tonumber(stamp), more}
