-- Gives back what this attempt has: the lock, which goes to the first in line, or its place.
-- ARGV: value, channel of changes, channel of releases, ms to keep a tombstone (0: none)
-- Answers 1 when it had something, else 0.
local is_undo = ARGV[4] ~= '0'
local held, waited = is_holder(), redis.call('ZSCORE', queue, value)
if held then
  redis.call('DEL', lock)
elseif waited then
  step_out(value)
end
-- The acquisition that this undoes may still be on its way over a connection that broke: let it find this. Also where
-- something was found: what was sent twice may come twice.
-- Safeguard: an undo leaves its tombstone also where it found something (Redis, queue)
if is_undo then
  redis.call('SET', tombstone, '', 'PX', ARGV[4])
end
-- In order, or nobody was told of this grant: nobody is at work under it. After any other end the delay stays.
if (held or is_undo) and redis.call('GET', delayed) == value then
  redis.call('DEL', delayed)
end
promote()
if held and redis.call('EXISTS', lock) == 0 then
  -- The counter stays; who held it and with which payload is of no use any more.
  redis.call('HDEL', token, 'held', 'value', 'payload', 'since')
  -- Nobody stands in line. Those who wait without a queue look again.
  redis.pcall('PUBLISH', ARGV[3], redis.pcall('PUBSUB', 'NUMSUB', ARGV[3])[2] or 0)
end
if held or waited then
  announce_change()
  return 1
end
return 0
