-- Asks for the lease of a key before its value is loaded.
-- KEYS: lease, tombstone, value. ARGV: a random token, the lease's time in milliseconds, and which value the caller can do
-- without: the SHA-1 of its bytes in lower-case hex, "*" for any, "" for none. Other text matches nothing, so it is an error.
-- Answers {"held", ms}: nothing may be stored for so long. {"value", text}: somebody else has stored a value.
-- {"taken", ms}: somebody else loads, and the lease ends in so many milliseconds. {"lease", text}: load, and fill with text.
-- The time makes every lease another text, so that a late copy of this command brings no lease back that was unlinked.
local useless = ARGV[3]
if not useless or useless ~= '*' and useless ~= '' and (#useless ~= 40 or string.find(useless, '[^0-9a-f]')) then
  return redis.error_reply('ERR ARGV[3] must be the SHA-1 of the bytes of the value in 40 lower-case hex digits, * or empty')
end
if redis.call('GET', KEYS[2]) then
  return {'held', redis.call('PTTL', KEYS[2])}
end
if useless ~= '*' then
  local value = redis.call('GET', KEYS[3])
  if value and redis.sha1hex(value) ~= useless then
    return {'value', value}
  end
end
local now = redis.call('TIME')
local mine = ARGV[1] .. ':' .. now[1] .. string.format('%06d', now[2])
local lease = redis.call('SET', KEYS[1], mine, 'PX', ARGV[2], 'NX', 'GET')
if not lease then
  return {'lease', mine}
end
if string.sub(lease, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then
  return {'lease', lease}
end
return {'taken', redis.call('PTTL', KEYS[1])}
