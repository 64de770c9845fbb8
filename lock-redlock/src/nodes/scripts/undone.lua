-- The undo of this attempt was here before its vote, so the attempt must get nothing. Nor must its waiter be enrolled: nobody
-- would ever remove the entry. The undo of a whole attempt holds for all its rounds.
-- Safeguard: what comes after its undo lines nobody up (Redlock)
if redis.call('EXISTS', tombstone, gone) > 0 then
  return {'undone'}
end

