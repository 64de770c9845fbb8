-- Sets a value, or deletes it, unless a write with a higher fencing token came before.
-- KEYS[1] the value. KEYS[2] the highest token so far, in the same slot.
-- ARGV[1] the token: as text, ten digits, a dash and twenty digits; or as an integer, era * 10^16 + number.
-- ARGV[2] the value; without it the value is deleted.
-- Answers nil when it was done; the highest token so far, as text, when it was not. It is kept as text, too.

-- The text of a token that is an integer; another argument as it is. The last 16 digits of an integer are the number.
local function text(token)
  if #token > 19 or not string.match(token, '^%d+$') then
    return token
  end
  local digits = string.rep('0', 20 - #token) .. token
  -- Safeguard: a fence reads the era out of an integer (Redis)
  return '000000' .. string.sub(digits, 1, 4) .. '-0000' .. string.sub(digits, 5)
end

-- A Lua number is exact up to 53 bits, and the order of strings is up to the server's locale: ten digits at a time are
-- exact in any case.
local function parts(token)
  if #token ~= 31 or not string.match(token, '^%d+%-%d+$') or string.sub(token, 11, 11) ~= '-' then
    return nil
  end
  return {
    tonumber(string.sub(token, 1, 10), 10),
    -- Safeguard: a fence compares tokens beyond 53 bits exactly (Redis)
    tonumber(string.sub(token, 12, 21), 10),
    tonumber(string.sub(token, 22, 31), 10),
  }
end

local function lower(a, b)
  for part = 1, 3 do
    if a[part] ~= b[part] then
      return a[part] < b[part]
    end
  end
  return false
end

local given = text(ARGV[1])
local token = parts(given)
if not token then
  return redis.error_reply('NOTOKEN the argument is not a fencing token')
end
local stored = redis.call('GET', KEYS[2])
if stored then
  local highest = parts(stored)
  if not highest then
    return redis.error_reply('NOTOKEN the key of the token holds something else')
  end
  -- Safeguard: a fence refuses a lower token (Redis)
  if lower(token, highest) then
    return stored
  end
end
redis.call('SET', KEYS[2], given)
if ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
end
return nil
