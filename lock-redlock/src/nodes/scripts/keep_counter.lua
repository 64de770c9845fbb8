-- What is held for days must not outlive its counter.
local function keep_counter(ttl)
  if redis.call('PTTL', token) < ttl + 43200000 then
    redis.call('PEXPIRE', token, ttl + 86400000)
  end
end
