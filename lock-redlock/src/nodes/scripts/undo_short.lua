-- The common path of an undo: it gives back a lock that is held alone, nobody waits, and nothing of the attempt is on its way.
if ARGV[2] == '0' and ARGV[3] == '' and not ARGV[4] then
  local lock = KEYS[1]
  local held = redis.pcall('GET', lock)
  -- Safeguard: the common path of an undo deletes only its own value (Redlock)
  if type(held) == 'string' and string.byte(held) == 1 and string.sub(held, 18, 49) == ARGV[1]
      and redis.call('EXISTS', lock .. ':waiters', lock .. ':waiting') == 0 then
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', lock .. ':changed', '')
    return 1
  end
end

