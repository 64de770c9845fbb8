-- The server's clock, in microseconds and in whole milliseconds.
local time = redis.call('TIME')
local now, ms = time[1] * 1000000 + time[2], time[1] * 1000 + math.floor(time[2] / 1000)

