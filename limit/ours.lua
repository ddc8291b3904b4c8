-- Answers the type of a subject's value and, if that is a string, the value; or nil if the value is not
-- of this package. All its releases keep, in front or as the lowest score, a time in microseconds: whole,
-- and of the years 2001 to 2096.
local function ours(subject)
  local kind = redis.call('TYPE', subject).ok
  local value, time
  if kind == 'none' then
    return kind
  elseif kind == 'zset' then
    time = tonumber(redis.call('ZRANGE', subject, 0, 0, 'WITHSCORES')[2])
  elseif kind == 'string' then
    value = redis.call('GET', subject)
    time = #value >= 16 and #value <= 32 and struct.unpack('>d', value)
  end
  if time and time >= 1e15 and time < 4e15 and time % 1 == 0 then
    return kind, value
  end
end
-- How long a key stays after its counts, in ms. Redis counts its TTL from a time that it has read before the script calls
-- TIME, in whole milliseconds, and may remove it within the last one.
local margin = 1000
local foreign = {err = 'WRONGTYPE the key has a value that no limit has made'}

