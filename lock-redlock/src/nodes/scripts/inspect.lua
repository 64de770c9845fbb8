-- Who holds the lock, alone or as readers.
-- KEYS: lock, token, readers, reading
-- Answers {alone, readers}: alone is {} or {type, value, remaining ms or -1, number or '', payload or '', since
-- or ''}; readers lists {value, ms until it ends, note}.
local _, ms = clock()

local function members(set, notes)
  local all = {}
  local there = redis.call('ZRANGEBYSCORE', set, digits(ms), '+inf', 'WITHSCORES')
  for at = 1, #there, 2 do
    all[#all + 1] = {there[at], tonumber(there[at + 1]) - ms, redis.call('HGET', notes, there[at]) or ''}
  end
  return all
end

local function alone(lock, token)
  local kind = redis.call('TYPE', lock).ok
  if kind == 'none' then
    return {}
  end
  local value = ''
  if kind == 'string' then
    value = redis.call('GET', lock)
  end
  local number, payload, since = '', '', ''
  if redis.call('TYPE', token).ok == 'hash' then
    local stored = redis.call('HMGET', token, 'value', 'held', 'payload', 'since')
    -- What an earlier holder left behind does not belong to this one.
    if stored[1] == value then
      number, payload, since = stored[2] or '', stored[3] or '', stored[4] or ''
    end
  end
  return {kind, value, redis.call('PTTL', lock), number, payload, since}
end

return {alone(KEYS[1], KEYS[2]), members(KEYS[3], KEYS[4])}
