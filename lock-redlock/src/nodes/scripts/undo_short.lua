-- The common paths of an undo of an attempt that does not wait: it gives back a lock that is held alone, and nobody waits; or there
-- is nothing to give back.
if not ARGV[4] then
  local lock = KEYS[1]
  local text = redis.pcall('GET', lock)
  -- Safeguard: the common path of an undo deletes only its own value (Redlock)
  -- Safeguard: catalogue: a late release leaves the next holder alone (Redlock)
  local held = type(text) == 'string' and #text >= 49 and string.byte(text) == 1 and string.sub(text, 18, 49) == ARGV[1]
  -- Safeguard: the common path of an undo is left where the attempt reads (Redlock)
  local read = not held and redis.call('ZSCORE', lock .. ':readers', ARGV[1])
  -- Safeguard: the common path of an undo is left where anybody waits (Redlock)
  local is_alone = held and ARGV[3] == '' and redis.call('EXISTS', lock .. ':waiters', lock .. ':waiting') == 0
  if is_alone then
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', lock .. ':changed', '')
  end
  if is_alone or not (held or read) then
    -- Safeguard: the common path of an undo leaves its tombstone (Redlock)
    if ARGV[2] ~= '0' then
      redis.call('SET', lock .. ':undone:' .. ARGV[1], '', 'PX', ARGV[2])
    end
    return held and 1 or 0
  end
end

