local kind, value, delay = string.sub(ARGV[1], 1, 1), ARGV[2], tonumber(string.sub(ARGV[1], 2))
-- Whatever somebody has put in the place of other keys, what is held is given back.
local is_intact = read_types(redis.pcall) and not is_foreign
local is_released, is_open = false, false
if is_own(value) then
  redis.call('DEL', lock)
  held, is_released, is_open = false, true, true
  -- In order, so it opens at once. After any other end the delay stays.
  -- Safeguard: a release in order ends the lock delay (Redis)
  if delay > 0 and redis.pcall('GET', delayed) == value then
    redis.call('DEL', delayed)
  end
elseif kind ~= 'w' then
  -- One whose lease has ended is lost, and its place stays for its lock delay.
  local ends = tonumber(redis.call('ZSCORE', members, value) or '')
  if ends and ends - delay >= ms then
    redis.call('ZREM', members, value)
    redis.pcall('HDEL', notes, value)
    -- Safeguard: the last reader that lives hands the lock over (Redis)
    is_released, is_open = true, is_semaphore or living() == 0
  end
end
local more = 0
if is_released then
  -- Safeguard: a lock is given back whatever stands beside it (Redis)
  more = is_open and is_intact and promote() or 0
  announce()
  save_head()
end
return {is_released and 1 or 0, more}
