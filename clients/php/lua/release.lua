-- Gives a lease back whose load failed, or brought nothing that may be stored.
-- KEYS: lease; to remove what the load has superseded, the value too. ARGV: the lease's text; for the value, the SHA-1 of its
-- bytes in lower-case hex. Other text is an error, and the lease stays.
-- Answers 1 if the lease was still there, 0 otherwise: then the value stays, as one with another SHA-1 does.
if KEYS[2] and (#(ARGV[2] or '') ~= 40 or string.find(ARGV[2], '[^0-9a-f]')) then
  return redis.error_reply('ERR ARGV[2] must be the SHA-1 of the bytes of the value in 40 lower-case hex digits')
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if KEYS[2] then
  local value = redis.call('GET', KEYS[2])
  if value and redis.sha1hex(value) == ARGV[2] then
    redis.call('UNLINK', KEYS[2])
  end
end
return redis.call('UNLINK', KEYS[1])
