-- Gives a value another time to live, if it is still the one that the caller has read.
-- KEYS: value. ARGV: the SHA-1 of the bytes of the value that was read, in lower-case hex, or the call is an error; the value with
-- its new time in it; that time in milliseconds.
-- Answers 1 if it did, 0 if the value is another one or gone.
if #(ARGV[1] or '') ~= 40 or string.find(ARGV[1], '[^0-9a-f]') then
  return redis.error_reply('ERR ARGV[1] must be the SHA-1 of the bytes of the value in 40 lower-case hex digits')
end
local value = redis.call('GET', KEYS[1])
if not value or redis.sha1hex(value) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
