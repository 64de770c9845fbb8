-- One step of a list of locks over the keys of this server, however many there are.
-- KEYS: none
-- ARGV: cursor, pattern
-- Answers {cursor of the next step or 0, keys}.
return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', '500')
