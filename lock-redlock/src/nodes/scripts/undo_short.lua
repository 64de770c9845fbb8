-- The common path of an undo: it gives back a lock that is held alone, nobody waits, and nothing of the attempt is on its way.
if ARGV[5] == '0' and ARGV[6] == '0' and ARGV[7] == '' then
  local held = redis.pcall('GET', KEYS[1])
  -- Safeguard: the common path of an undo deletes only its own value (Redlock)
  if type(held) == 'string' and string.byte(held) == 1 and string.sub(held, 18, 49) == ARGV[1]
      and redis.call('EXISTS', KEYS[8], KEYS[9]) == 0 then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', ARGV[2], '')
    return 1
  end
end

