-- The line of a lock or of a semaphore: what its scripts have in common where their common path does not do.
-- KEYS: lock; the others are found from it. On a cluster they are passed, too, only so that it runs the script where they all are.
-- ARGV: what begins with the kind, ...
local lock, line = KEYS[1], KEYS[1]
local members, notes = lock .. ':readers', lock .. ':reading'
local is_semaphore = string.sub(ARGV[1], 1, 1) == 'p'
if is_semaphore then
  line = lock .. ':permits'
  members, notes, lock = line, lock .. ':permitted', line .. ':alone'
end
local head, delayed, queue = KEYS[1] .. ':token', line .. ':delay', line .. ':queue'
local waiters, alive = queue .. ':waiters', queue .. ':alive'
-- How many contenders one script looks at, so that its cost does not depend on how many there are.
local MOST = 64

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)

-- Who holds it alone: a packed string; true for a key of another type, which is somebody's lock; false for nobody.
local held = redis.pcall('GET', lock)
if type(held) == 'table' then
  held = true
end

-- Never by concatenation, which writes a number of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

-- Reads each key by a command of its type, before the first write: an error then means that nothing was written. False when
-- one has another type, where `call` raises no error.
local function read_types(call)
  local answers = {
    call('GET', delayed), call('ZCARD', members), call('HLEN', notes), call('ZCARD', queue), call('HLEN', waiters),
    call('ZCARD', alive),
  }
  local are_ours = true
  for _, answer in ipairs(answers) do
    are_ours = type(answer) ~= 'table' and are_ours
  end
  return are_ours
end

-- The head: who may wait, read, or keep it closed (flags that are only cleared when the key behind them is gone), the newest
-- number, and until when somebody looks on.
local packed_head = redis.pcall('GET', head)
local is_foreign = type(packed_head) == 'table' or packed_head and string.byte(packed_head) ~= 1
-- Safeguard: whoever finds no head overlooks nobody (Redis)
local waiting, shared, closed, counter, looked = 1, 1, 1, 0, 0
if packed_head and not is_foreign then
  local _
  _, waiting, shared, closed = string.byte(packed_head, 1, 4)
  counter, looked = struct.unpack('<dd', packed_head, 5)
elseif type(held) == 'string' and #held >= 49 and string.byte(held) == 1 then
  -- Nothing is known of the others: all flags are set. The holder's number is not given out again.
  -- Safeguard: whoever finds no head gives no number again (Redis)
  counter = struct.unpack('<d', held, 10)
end

local function save_head()
  if is_foreign then
    return
  end
  if not is_semaphore then
    waiting = waiting == 1 and redis.call('EXISTS', queue) or 0
    shared = shared == 1 and redis.call('EXISTS', members) or 0
    closed = closed == 1 and redis.call('EXISTS', delayed) or 0
  end
  local packed = string.char(1, waiting, shared, closed) .. struct.pack('<dd', counter, looked > now and looked or 0)
  if packed ~= packed_head then
    redis.call('SET', head, packed, 'PX', '259200000')
  end
end

-- pcall: where publishing is not allowed, those who look on look again by themselves.
local function announce()
  if looked > now then
    redis.pcall('PUBLISH', KEYS[1] .. ':changed', '')
  end
end

local function tombstone(value)
  return KEYS[1] .. ':undone:' .. value
end

local function is_own(value)
  -- Safeguard: only the holder gives the lock on (Redis, queue)
  return type(held) == 'string' and #held >= 49 and string.sub(held, 18, 49) == value
end

local function last_end()
  return tonumber(redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')[2] or '')
end

-- How many are members; those whose lease has ended count until their lock delay is over.
local function living()
  return redis.call('ZCOUNT', members, digits(ms), '+inf')
end

local function keep_members()
  local expires = digits(last_end() + 1000)
  redis.call('PEXPIREAT', members, expires)
  redis.call('PEXPIREAT', notes, expires)
end

local function remove_member(value)
  redis.call('ZREM', members, value)
  redis.call('HDEL', notes, value)
end

local function step_out(value)
  redis.call('HDEL', waiters, value)
  redis.call('ZREM', alive, value)
  return redis.call('ZREM', queue, value) == 1
end

-- The number by which `value` holds it, if its lease has not ended.
local function number_of(value, delay)
  if is_own(value) then
    return (struct.unpack('<d', held, 10))
  end
  local ends = tonumber(redis.call('ZSCORE', members, value) or '')
  local note = ends and ends - delay >= ms and redis.call('HGET', notes, value)
  return note and (struct.unpack('<d', note))
end

-- Arms the whole ttl of one that holds it.
local function arm(value, ttl, delay)
  if is_own(value) then
    redis.call('PEXPIRE', lock, ttl)
    if delay > 0 then
      closed = 1
      redis.call('SET', delayed, value, 'PX', ttl + delay)
    end
  else
    redis.call('ZADD', members, digits(ms + ttl + delay), value)
    keep_members()
  end
end

-- Makes a holder of `value`, for `span` ms.
local function grant(kind, value, span, delay, proposal, of, payload)
  counter = math.max(math.min(proposal, now + 60000000), counter + 1, now)
  if kind == 'w' then
    held = '\1' .. struct.pack('<dd', now, counter) .. value .. payload
    redis.call('SET', lock, held, 'PX', span)
    if delay > 0 then
      closed = 1
      redis.call('SET', delayed, value, 'PX', span + delay)
    end
  else
    shared = is_semaphore and shared or 1
    redis.call('HSET', notes, value, struct.pack('<dddd', counter, now, delay, of) .. payload)
    redis.call('ZADD', members, digits(ms + span + delay), value)
    keep_members()
  end
  return counter
end

-- For how many ms it is closed to `value`: -1 without an end; false when it is open.
local function closed_to(kind, value, of)
  -- Safeguard: a reader waits for the writer (Redis)
  if held then
    return redis.call('PTTL', lock)
  end
  local lost = redis.call('GET', delayed)
  -- Safeguard: a lock delay keeps the lock closed (Redis)
  if lost and lost ~= value then
    return redis.call('PTTL', delayed)
  end
  if kind == 'w' then
    local last = last_end()
    -- Safeguard: a writer waits for the readers (Redis)
    return last and last >= ms and last - ms
  end
  -- Safeguard: no more permits than there are (Redis)
  if kind == 'p' and living() >= of then
    return tonumber(redis.call('ZRANGEBYSCORE', members, digits(ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) - ms
  end
  return false
end

-- Those that have ended and those that count as dead go.
local function sweep()
  local ended = redis.call('ZRANGEBYSCORE', members, '-inf', '(' .. digits(ms), 'LIMIT', 0, MOST)
  for _, value in ipairs(ended) do
    remove_member(value)
  end
  -- Safeguard: the dead do not stand in line (Redis, queue)
  local dead = redis.call('ZRANGEBYSCORE', alive, '-inf', digits(now), 'LIMIT', 0, MOST)
  for _, value in ipairs(dead) do
    step_out(value)
  end
  if ended[1] or dead[1] then
    announce()
  end
end

-- Hands it to all at the head of the queue that may hold it now. Only their clients are told: value, number, the stamp of
-- the request by which each was last heard of, and whether more could go. Answers 1 when more could.
local function promote()
  local message, channel
  local function tell(more)
    if message then
      -- pcall: where publishing is not allowed, the next beat tells.
      redis.pcall('PUBLISH', channel, message .. string.char(more))
    end
    message = nil
  end
  for seen = 0, MOST do
    local first = not held and redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then
      break
    end
    local note, stamp = redis.call('HGET', waiters, first), tonumber(redis.call('ZSCORE', alive, first) or '0')
    -- Safeguard: the dead are not handed the lock (Redis)
    local is_alive = note and stamp > now
    local kind = note and string.sub(note, 1, 1)
    local claim, delay, proposal, _, of, length
    if is_alive then
      claim, delay, proposal, _, of, length = struct.unpack('<dddddd', note, 2)
      if closed_to(kind, first, of) then
        break
      end
    end
    -- Safeguard: one script looks at a bounded number of waiters (Redis)
    if seen == MOST then
      tell(1)
      return 1
    end
    step_out(first)
    if is_alive then
      tell(0)
      local number = grant(kind, first, claim, delay, proposal, of, string.sub(note, 50 + length))
      message, channel = first .. struct.pack('<dd', number, stamp), string.sub(note, 50, 49 + length)
      announce()
    end
  end
  tell(0)
  return 0
end

-- A later grant has a higher number, also where the head was lost in between.
local function newest()
  return math.max(counter, now)
end

-- The line goes when the last one in it counts as dead.
local function keep_line(span)
  span = math.ceil(span / 1000)
  if redis.call('PTTL', alive) < span then
    for _, key in ipairs({queue, waiters, alive}) do
      redis.call('PEXPIRE', key, span)
    end
  end
end
