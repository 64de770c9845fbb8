-- The common path of a vote: nobody holds the lock, reads, waits, or undid this attempt.
-- Safeguard: the common path is for a lock that nobody else uses (Redlock)
if stored and redis.call('EXISTS', lock, lock .. ':undone:' .. value, gone, lock .. ':readers', lock .. ':reserved',
    lock .. ':waiters', lock .. ':writers') == 0 then
  local number = next_number(stored, now)
  take(number, stored, now)
  return number
end

