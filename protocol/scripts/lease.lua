-- Asks for the lease of a key before its value is loaded.
-- KEYS: lease, tombstone, value. ARGV: a random token, the lease's time in milliseconds, and which value the caller can do
-- without: its SHA-1 in hex, "*" for any, "" for none.
-- Answers {"held", ms}: nothing may be stored for so long. {"value", text}: somebody else has stored a value.
-- {"taken", ms}: somebody else loads, and the lease ends in so many milliseconds. {"lease", text}: load, and fill with text.
-- The time makes every lease another text, so that a late copy of this command brings no lease back that was unlinked.
if redis.call('GET', KEYS[2]) then
  return {'held', redis.call('PTTL', KEYS[2])}
end
if ARGV[3] ~= '*' then
  local value = redis.call('GET', KEYS[3])
  if value and redis.sha1hex(value) ~= ARGV[3] then
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
