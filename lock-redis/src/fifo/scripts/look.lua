-- Who stands in line, beside who holds it, at one moment.
-- KEYS: those of inspect.lua, then queue, fresh, waiters
-- Answers {what inspect.lua answers, waiters}: each is {value, payload, since when in microseconds}, in their order.
local function line(queue, fresh, waiters)
  local _, ms = clock()
  local seen = {}
  for _, value in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local alive = tonumber(redis.call('ZSCORE', fresh, value) or '0') > ms
    local packed = redis.call('HGET', waiters, value)
    -- The dead are swept out by the next one who comes.
    if alive and packed then
      local waiter = cmsgpack.unpack(packed)
      seen[#seen + 1] = {value, waiter.payload, digits(waiter.since)}
    end
  end
  return seen
end

return {inspect(), line(KEYS[7], KEYS[8], KEYS[9])}
