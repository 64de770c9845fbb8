-- The server's clock, in microseconds and in whole milliseconds.
local time = redis.call('TIME')
local now, ms = time[1] * 1000000 + time[2], time[1] * 1000 + math.floor(time[2] / 1000)

-- Never by concatenation, which writes a number of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end
