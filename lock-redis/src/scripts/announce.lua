-- Notes that a writer waits, or that it still does.
-- KEYS: writers, writing
-- ARGV: writer, ms since it came, ms to keep its note
local now, ms = clock()
read_members(KEYS[1], KEYS[2])
announce(KEYS[1], KEYS[2], ARGV[1], now - tonumber(ARGV[2]) * 1000, ms, tonumber(ARGV[3]))
return 1
