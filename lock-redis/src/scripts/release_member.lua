-- Gives back the place of a reader or a permit, if it is still there, and wakes those who wait.
-- KEYS: members, notes, tombstone of this attempt if it may be left
-- ARGV: value, channel of releases, ms to keep a tombstone (0: none), channel of
--       changes, whom to tell: 'each' release or only that of the 'last' member, ms of lock delay
-- Answers 0 when it was gone, else 1 + the number of those who heard of it.
local members, notes, value = KEYS[1], KEYS[2], ARGV[1]
local is_undo = ARGV[3] ~= '0'

-- As in release.lua.
local function bury()
  if is_undo then
    redis.call('SET', KEYS[3], '', 'PX', ARGV[3])
  end
end

local _, ms = clock()
local ends = tonumber(redis.call('ZSCORE', members, value) or '')
-- One whose lease has ended is lost, and its place stays for its lock delay; but nobody is at work under a grant that
-- nobody was told of.
local is_held = ends and ends - tonumber(ARGV[6]) >= ms
if not (is_held or is_undo and ends) then
  bury()
  return 0
end
-- Safeguard: an undo leaves its tombstone also where it gave a reader's place back (Redis)
redis.call('ZREM', members, value)
bury()
-- pcall: whatever somebody has put in the place of the notes, the place is given back, and those who wait are told.
redis.pcall('HDEL', notes, value)
remove_ended(members, notes, ms)
redis.pcall('PUBLISH', ARGV[4], '')
if ARGV[5] == 'last' and redis.call('EXISTS', members) == 1 then
  return 1
end
-- As in release.lua.
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2] or 0
local heard = redis.pcall('PUBLISH', ARGV[2], listeners)
return 1 + (tonumber(heard) or 0)
