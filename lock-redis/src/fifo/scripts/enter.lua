-- Takes the lock if it is free and nobody waits for it; else stands in line, if it is to wait.
-- ARGV: value, channel of changes, ttl in ms, proposed token number, payload, ms of lock delay, 1 to wait, channel of the
--   client, ms that it counts as alive without a heartbeat, ms that a lock handed over is its own until the first renewal
-- Answers {'granted', number}, {'in line', how many are before it, ms or -1, newest
--   number that was given out}, {'held', ms or -1} or {'undone'}.
local ttl, proposal, payload, delay = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

-- Safeguard: who comes while somebody waits goes behind (Redis, queue)
promote()
if is_holder() then
  -- A resent request gets the same grant again. Its holder counts the whole ttl from the first sending, so the ttl is
  -- armed anew: if the lock was handed over meanwhile, it has less.
  local number = number_held()
  if number then
    arm(ttl, delay)
    return {'granted', number}
  end
end

-- The undo of this attempt was here before it: it must not come back.
if redis.call('EXISTS', tombstone) == 1 then
  return {'undone'}
end
-- Whoever waits and may hold it has been promoted by now, so an open lock is one for which nobody waits.
local left = closed_for(value)
if not left or is_holder() then
  return {'granted', grant(value, ttl, delay, proposal, payload)}
end
if ARGV[7] ~= '1' then
  return {'held', left}
end
if not redis.call('ZSCORE', queue, value) then
  local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or '0'
  redis.call('ZADD', queue, digits(tonumber(last) + 1), value)
  redis.call('HSET', waiters, value, cmsgpack.pack({
    channel = ARGV[8], claim = tonumber(ARGV[10]), delay = delay, proposal = proposal, payload = payload, since = now,
  }))
  announce_change()
end
freshen(tonumber(ARGV[9]))
return {'in line', redis.call('ZCARD', queue) - 1, left, newest()}
