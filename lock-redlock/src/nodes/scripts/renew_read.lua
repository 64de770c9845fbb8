-- Extends a reader's holding, if it is still the one that was counted.
-- ARGV: value, ttl in ms, number that this node gave to the holding, stamp
-- Answers 1 when extended, 0 when the holding is gone, -1 when another server answers, -2 when this one has lost its data.
local ttl = tonumber(ARGV[2])
if not is_member then
  return stamp == '' and -2 or -1
end
-- The same value with another number is another holding.
if reader(value) ~= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', readers, digits(ms + ttl), value)
keep_until_last_end(readers, reading)
keep_counter(ttl)
return 1
