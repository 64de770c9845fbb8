-- The common path of an undo: it gives back a lock that is held alone, and nobody waits.
if ARGV[3] == '' and not ARGV[4] then
  local lock = KEYS[1]
  local held = redis.pcall('GET', lock)
  -- Safeguard: the common path of an undo deletes only its own value (Redlock)
  if type(held) == 'string' and string.byte(held) == 1 and string.sub(held, 18, 49) == ARGV[1]
      and redis.call('EXISTS', lock .. ':waiters', lock .. ':waiting') == 0 then
    redis.call('DEL', lock)
    -- Safeguard: the common path of an undo leaves its tombstone (Redlock)
    if ARGV[2] ~= '0' then
      redis.call('SET', lock .. ':undone:' .. ARGV[1], '', 'PX', ARGV[2])
    end
    redis.pcall('PUBLISH', lock .. ':changed', '')
    return 1
  end
end

