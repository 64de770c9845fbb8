-- The server's clock, in microseconds and in whole milliseconds.
local function clock()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  return seconds * 1000000 + micros, seconds * 1000 + math.floor(micros / 1000)
end

-- Never by concatenation, which writes a number of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end
