-- How the scripts on a lock begin: its keys, and who holds it.
-- KEYS: lock
-- ARGV: value of the attempt, ...
local lock, value = KEYS[1], string.sub(ARGV[1], 1, 32)
local token, tombstone = lock .. ':token', lock .. ':undone:' .. value

-- What the lock key holds: the value of the attempt, the number and the time (us) of its grant, and who it is. Of what
-- another library has put there only the text, which is '' for another type of key; nothing where there is no key.
-- Whoever that is holds the lock.
local function holder()
  -- A key of another type is no error here: hence pcall.
  local held = redis.pcall('GET', lock)
  if type(held) ~= 'string' then
    return held and ''
  end
  if #held < 49 or string.byte(held) ~= 1 then
    return held
  end
  local since, number = struct.unpack('<dd', held, 2)
  return string.sub(held, 18, 49), number, since, string.sub(held, 50)
end

-- Whoever asks finds a holding of the very attempt `value` by its number.
local function own(value)
  local its, number, since, payload = holder()
  if its == value then
    return number, since, payload
  end
end
