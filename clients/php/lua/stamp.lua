-- Reads the stamp of a tag before a value is loaded, or makes it.
-- KEYS: stamp, the stamp's tombstone. ARGV: a random token, the least time that the stamp must live, in milliseconds.
-- Answers the stamp's text, or "" while the tag is held.
-- The time makes every stamp another text, so that a late copy of this command revives no entry of an unlinked stamp.
if redis.call('GET', KEYS[2]) then
  return ''
end
local stamp = redis.call('GET', KEYS[1])
if stamp then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return stamp
end
local now = redis.call('TIME')
stamp = ARGV[1] .. ':' .. now[1] .. string.format('%06d', now[2])
redis.call('SET', KEYS[1], stamp, 'PX', ARGV[2])
return stamp
