-- Who holds a lock.
-- KEYS: lock, record
-- ARGV: us for which whoever looks on wants to hear of changes (0: not at all)
-- Answers as the look at a name with a queue does: {format, alone, {}, {}, {}, {}}. A holder of this library is shown packed
--   as there, one of another library by what the lock key holds.
local alone, kind = {}, redis.call('TYPE', KEYS[1]).ok
local record = redis.pcall('GET', KEYS[2])
local is_foreign = type(record) == 'table' or record and string.byte(record) ~= 2
if kind ~= 'none' then
  local held = kind == 'string' and redis.call('GET', KEYS[1]) or ''
  -- What is noted of an earlier holder is not the present one's.
  -- Safeguard: the record is shown of its holder only (Redis, plain)
  if record and not is_foreign and string.sub(record, 10, 41) == held then
    held = '\1' .. string.sub(record, 42, 49) .. string.sub(record, 2, 41) .. string.sub(record, 66)
  end
  alone = {kind, held, redis.call('PTTL', KEYS[1])}
end
local wanted = tonumber(ARGV[1])
if wanted > 0 and not is_foreign then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  record = record or '\2' .. string.rep('\0', 64)
  if struct.unpack('<d', record, 58) < now + wanted / 2 then
    record = string.sub(record, 1, 57) .. struct.pack('<d', now + wanted) .. string.sub(record, 66)
    redis.call('SET', KEYS[2], record, 'PX', '259200000')
  end
end
return {is_foreign and 1 or 0, alone, {}, {}, {}, {}}
