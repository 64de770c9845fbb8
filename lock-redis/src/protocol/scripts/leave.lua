-- Takes back whatever an attempt has: a place in the line, the lock, or a place among those who share it.
-- KEYS: lock
-- ARGV: kind, value, ms of lock delay, ms to keep a tombstone (0: none; else it is an undo)
-- Answers {1 when it had something, else 0, 1 when more could be granted}.
local value, delay, is_undo = ARGV[2], tonumber(ARGV[3]), ARGV[4] ~= '0'
-- Whatever somebody has put in the place of other keys, what is held is given back.
local is_intact = read_types(redis.pcall) and not is_foreign
local had = false
if is_own(value) then
  redis.call('DEL', lock)
  held, had = false, true
end
if is_intact and step_out(value) then
  had = true
end
local ends = tonumber(ARGV[1] ~= 'w' and redis.call('ZSCORE', members, value) or '')
if ends and (is_undo or ends - delay >= ms) then
  redis.call('ZREM', members, value)
  redis.pcall('HDEL', notes, value)
  had = true
end
-- What was sent twice may come once more, so the tombstone is left also where something was found.
-- Safeguard: an undo leaves its tombstone also where it gave a reader's place back (Redis)
-- Safeguard: an undo leaves its tombstone also where it gave the lock back (Redis)
if is_undo then
  redis.call('SET', tombstone(value), '', 'PX', ARGV[4])
  -- The common path does not look for it.
  -- Safeguard: an undo closes the common path while its tombstone is there (Redis)
  looked = math.max(looked, now + ARGV[4] * 1000)
end
-- Nobody was told of this grant, so nobody is at work under it.
if (had or is_undo) and redis.pcall('GET', delayed) == value then
  redis.call('DEL', delayed)
end
local more = 0
if is_intact then
  more = promote()
  if had then
    announce()
  end
end
if is_intact or is_undo then
  save_head()
end
return {had and 1 or 0, more}
