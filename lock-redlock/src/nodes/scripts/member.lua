-- Whether this server is the member that the client counts it as; else no answer of it may count. The stamp is the last
-- argument, and its key the last key.
local stamp = redis.call('GET', KEYS[#KEYS]) or ''
local is_member = stamp == ARGV[#ARGV]

