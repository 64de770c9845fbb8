-- Who holds a name and who waits for it, at one moment.
-- KEYS: head, lock, readers, notes, queue, waiters, alive, permits, notes, queue, waiters, alive
-- ARGV: us for which whoever looks on wants to hear of changes (0: not at all)
-- Answers {format, alone, readers, waiters, permits, waiters for permits}. Format: 0 for ours, 1 for that of another version.
--   alone: {} or {type, string, ms left or -1}. Readers and permits: {value, ms until lease and delay end, note}. Waiters:
--   {value, note}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local function members(set, notes)
  local all = {}
  local there = redis.call('ZRANGEBYSCORE', set, digits(ms), '+inf', 'WITHSCORES')
  for at = 1, #there, 2 do
    all[#all + 1] = {there[at], there[at + 1] - ms, redis.call('HGET', notes, there[at]) or ''}
  end
  return all
end

local function line(queue, waiters, alive)
  local all = {}
  for _, value in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    local note = redis.call('HGET', waiters, value)
    -- Those that count as dead are removed by the next one who comes.
    if note and tonumber(redis.call('ZSCORE', alive, value) or '0') > now then
      all[#all + 1] = {value, note}
    end
  end
  return all
end

local alone, kind = {}, redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' then
  alone = {kind, kind == 'string' and redis.call('GET', KEYS[2]) or '', redis.call('PTTL', KEYS[2])}
end
local head = redis.pcall('GET', KEYS[1])
local is_foreign = type(head) == 'table' or head and string.byte(head) ~= 1
local wanted = tonumber(ARGV[1])
if wanted > 0 and not is_foreign then
  local flags, counter, looked = '\1\1\1\1', 0, 0
  if head then
    flags, counter, looked = string.sub(head, 1, 4), struct.unpack('<dd', head, 5)
  elseif kind == 'string' and #alone[2] >= 49 and string.byte(alone[2]) == 1 then
    counter = struct.unpack('<d', alone[2], 10)
  end
  if looked < now + wanted / 2 then
    redis.call('SET', KEYS[1], flags .. struct.pack('<dd', counter, now + wanted), 'PX', '259200000')
  end
end
return {
  is_foreign and 1 or 0, alone, members(KEYS[3], KEYS[4]), line(KEYS[5], KEYS[6], KEYS[7]), members(KEYS[8], KEYS[9]),
  line(KEYS[10], KEYS[11], KEYS[12]),
}
