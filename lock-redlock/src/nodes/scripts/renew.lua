-- Extends a writer's holding, if it is still the one that was counted.
-- ARGV: value, ttl in ms, number that this node gave to the holding, stamp
-- Answers 1 when extended, 0 when the holding is gone, -1 when another server answers, -2 when this one has lost its data.
local ttl = tonumber(ARGV[2])
-- Safeguard: a renewal is for the member that it was asked as (Redlock)
if not is_member then
  return stamp == '' and -2 or -1
end
-- The same value with another number is another holding, and somebody else may have been granted in between.
-- Safeguard: a renewal compares value and number (Redlock)
-- Safeguard: catalogue: a renewal does not set the key (Redlock)
if own(value) ~= tonumber(ARGV[3]) then
  return 0
end
redis.call('PEXPIRE', lock, ttl)
keep_counter(ttl)
return 1
