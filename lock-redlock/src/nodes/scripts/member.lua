-- Whether this server is the member that the client counts it as; else no answer of it may count. The stamp is the last
-- argument.
local stamp = redis.call('GET', 'redlock:member') or ''
local is_member = stamp == ARGV[#ARGV]

