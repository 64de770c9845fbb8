-- Says that some who stand in one line are alive, and asks what became of each.
-- KEYS: lock
-- ARGV: kind of line, then of each: value, kind, ttl in ms, ms of lock delay, us that it counts as alive, number of permits
-- Answers {newest number, 1 when more could be granted, {..}, ..}: each {0, how many are ahead, ms until it may open or -1,
--   stamp}, {1, number} with the whole ttl armed, or {2} when it is not known.
if is_foreign then
  return {0, 0}
end
read_types(redis.call)
local longest, heard = 0, {}
for at = 2, #ARGV, 6 do
  local span = tonumber(ARGV[at + 4])
  longest = math.max(longest, span)
  heard[#heard + 1] = digits(now + span)
  heard[#heard + 1] = ARGV[at]
end
-- Before the dead go: whoever speaks is alive.
if heard[1] then
  -- Safeguard: whoever speaks is alive before the dead go (Redis)
  redis.call('ZADD', alive, 'XX', unpack(heard))
  keep_line(longest)
end
sweep()
local answers = {0, promote()}
for at = 2, #ARGV, 6 do
  local value, kind, delay = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 3])
  local ahead = redis.call('ZRANK', queue, value)
  local number = not ahead and number_of(value, delay)
  if ahead then
    -- The others are woken by those ahead of them.
    local left = ahead == 0 and closed_to(kind, value, tonumber(ARGV[at + 5])) or -1
    answers[#answers + 1] = {0, ahead, left, now + tonumber(ARGV[at + 4])}
  elseif number then
    -- Safeguard: a beat that finds its grant arms the whole ttl (Redis)
    arm(value, tonumber(ARGV[at + 2]), delay)
    answers[#answers + 1] = {1, number}
  else
    answers[#answers + 1] = {2}
  end
end
answers[1] = newest()
save_head()
return answers
