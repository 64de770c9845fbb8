-- A heartbeat of one that stands in line.
-- ARGV: value, channel of changes, ttl in ms, ms of lock delay, ms that it counts as alive without a further heartbeat
-- Answers {'in line', how many are before it, ms or -1, newest number that was given out}, {'granted', number} with the
--   whole ttl armed, or {'gone'}.

-- Before the dead are swept out: whoever speaks is alive.
if redis.call('ZSCORE', queue, value) then
  freshen(tonumber(ARGV[5]))
end
promote()
if is_holder() then
  local number = number_held()
  if number then
    arm(tonumber(ARGV[3]), tonumber(ARGV[4]))
    return {'granted', number}
  end
end
local ahead = redis.call('ZRANK', queue, value)
if ahead then
  return {'in line', ahead, closed_for(value) or 0, newest()}
end
return {'gone'}
