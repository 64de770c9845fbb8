-- Who holds the lock, alone or as readers.
-- KEYS: lock
-- Answers {alone, readers}: alone is {} or {type, what the key holds, remaining ms or -1}; readers lists {value, ms until it
-- ends, note}.

local function members(set, notes)
  local all = {}
  local there = redis.call('ZRANGEBYSCORE', set, string.format('%.0f', ms), '+inf', 'WITHSCORES')
  for at = 1, #there, 2 do
    all[#all + 1] = {there[at], tonumber(there[at + 1]) - ms, redis.call('HGET', notes, there[at]) or ''}
  end
  return all
end

local function alone(lock)
  local kind = redis.call('TYPE', lock).ok
  if kind == 'none' then
    return {}
  end
  return {kind, kind == 'string' and redis.call('GET', lock) or '', redis.call('PTTL', lock)}
end

return {alone(KEYS[1]), members(KEYS[1] .. ':readers', KEYS[1] .. ':reading')}
