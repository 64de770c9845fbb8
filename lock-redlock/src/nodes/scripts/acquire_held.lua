-- Somebody holds the lock: what is answered then needs nothing of what follows, but where a waiter is to be lined up.
local its, given = holder()
if its == value and given then
  -- This very attempt holds it already: a resent request gets the same answer again, and the ttl is not touched,
  -- because the holder counts it from the first sending.
  return given
elseif its and waiter == '' then
  return {'held', redis.call('PTTL', lock), its}
end

