-- Ends one grant, whoever asks for that: the grant of an attempt by its number. Hands it over as a release does.
-- KEYS: lock
-- ARGV: kind, value, packed number, ms to keep a tombstone
-- Answers {1 when it was held by that grant, else 0, 1 when more could be granted}.
local value, number = ARGV[2], ARGV[3]
-- Whatever somebody has put in the place of other keys, what is held is given back.
local is_intact = read_types(redis.pcall) and not is_foreign
local had = false
if is_own(value) then
  -- Another grant of the same attempt, which was sent twice, is another holding.
  -- Safeguard: a forced release compares the number (Redis)
  if string.sub(held, 10, 17) == number then
    local delay = redis.pcall('GET', delayed) == value and redis.call('PTTL', delayed) - redis.call('PTTL', lock)
    redis.call('DEL', lock)
    held, had = false, true
    -- Not in order, so the lock delay begins now.
    if delay then
      redis.call('PEXPIRE', delayed, math.max(delay, 0))
    end
  end
else
  local ends = tonumber(redis.call('ZSCORE', members, value) or '')
  local note = ends and redis.pcall('HGET', notes, value)
  -- Safeguard: a forced release of a reader or a permit compares the number (Redis)
  if type(note) == 'string' and string.sub(note, 1, 8) == number then
    local delay = struct.unpack('<d', note, 17)
    had = ends - delay >= ms
    if had and delay > 0 then
      -- Ended a moment ago, so its place is taken until the lock delay is over.
      redis.call('ZADD', members, digits(ms + delay - 1), value)
    elseif had then
      remove_member(value)
    end
  end
end
if not had then
  return {0, 0}
end
-- A request of the attempt that is still on its way must not take it anew. The common path does not look for the tombstone.
redis.call('SET', tombstone(value), '', 'PX', ARGV[4])
looked = math.max(looked, now + ARGV[4] * 1000)
local more = is_intact and promote() or 0
announce()
save_head()
return {1, more}
