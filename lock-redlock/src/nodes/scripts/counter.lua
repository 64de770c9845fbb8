-- The counter of fencing tokens of a lock, as this node has it.

-- The counter of this node; nil where it has none. A key of another type raises an error: an earlier version of this library
-- keeps a hash there.
local function stored_counter()
  return tonumber(redis.call('GET', token) or '')
end

-- The counter never goes down, and goes days after the clock has passed it, so what starts from the clock again is above it.
local function raise_counter(number, ttl)
  local counter = math.max(stored_counter() or 0, tonumber(number))
  redis.call('SET', token, counter, 'PX', math.floor(math.max(counter - now, 0) / 1000) + 259200000 + ttl)
end
