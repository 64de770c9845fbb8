-- Gives back what an attempt has on this node, as a writer or as a reader, and wakes the waiters whose turn it is.
-- ARGV: value, ms to keep a tombstone (0: none), 1 for a reader or ''; of a waiter besides: its name, 1 to stay in the queue or '' to
--       leave it; of one that stays: ms since it came, ms to keep the waiters, ms to keep the intent of a writer; of one that
--       leaves: ms to keep the note that it is gone (0: none)
-- Answers 1 when given back, 0 when the lock was gone or another's.
local reads, waiter, in_line = ARGV[3] == '1', ARGV[4] or '', ARGV[5] == '1'
local gone = lock .. ':undone:' .. waiter

-- Safeguard: an undo deletes only its own value (Redlock)
local held = own(value) ~= nil
local read = reader(value) ~= nil
if held then
  redis.call('DEL', lock)
end
if read then
  redis.call('ZREM', readers, value)
  redis.call('HDEL', reading, value)
end
if held or read then
  tell_of_change()
end
-- Safeguard: an undo leaves its tombstone also where it found something (Redlock)
if ARGV[2] ~= '0' then
  -- A request that would take the lock for this attempt may still be on its way over a connection that broke: let it find
  -- this. Also where there was something to give back: that may have come by another request.
  redis.call('SET', tombstone, '', 'PX', ARGV[2])
end

-- A request of an earlier round may arrive after the whole attempt was undone, over a connection that broke meanwhile. It
-- gives back what it has to; but the waiter is gone, and its entry in the queue must not be renewed.
-- Safeguard: a late pass does not renew the place of a waiter that is gone (Redlock)
local stays, turn, intent = waiter ~= '' and in_line and redis.call('EXISTS', gone) == 0, false, false
if stays and reads then
  reader_waits(waiter, ARGV[6], ARGV[7])
elseif stays then
  writer_lines_up(waiter, ARGV[6], ARGV[7])
  writer_waits(waiter, ARGV[6], ARGV[8])
elseif waiter ~= '' and not in_line then
  if ARGV[6] ~= '0' then
    redis.call('SET', gone, '', 'PX', ARGV[6])
  end
  redis.call('ZREM', reads and waiting or waiters, waiter)
  intent = not reads and writer_gone(waiter)
  -- Its turn, which it does not take, goes to the next.
  if redis.call('GET', reservation) == waiter then
    redis.call('DEL', reservation)
    turn = true
  end
end

if redis.call('EXISTS', lock) == 0 then
  local free = readers_here() == 0
  if free and held then
    -- A waiter that stays in the queue gives a half-won vote back and tries again by itself, as do the writers that lost to
    -- it.
    if not stays then
      pass_turn_after_a_writer()
    end
  elseif free and read and stays then
    -- A writer that lost to a reader's half-won vote waits to be told.
    wake_a_writer()
  elseif free and (read or turn) then
    pass_turn_after_readers()
  elseif intent then
    wake_readers()
  end
end
return (held or read) and 1 or 0
