-- Who holds the lock.
-- KEYS: lock, token
-- Answers {} when it is free, else {type, value, remaining ms or -1, number or '', payload or ''}.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {}
end
local value = ''
if kind == 'string' then
  value = redis.call('GET', KEYS[1])
end
local number, payload = '', ''
if redis.call('TYPE', KEYS[2]).ok == 'hash' then
  local stored = redis.call('HMGET', KEYS[2], 'value', 'held', 'payload')
  -- What an earlier holder left behind does not belong to this one.
  if stored[1] == value then
    number, payload = stored[2] or '', stored[3] or ''
  end
end
return {kind, value, redis.call('PTTL', KEYS[1]), number, payload}
