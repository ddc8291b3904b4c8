-- Gives a lease back whose load failed, or brought nothing that may be stored.
-- KEYS: lease; to remove what the load has superseded, the value too. ARGV: the lease's text; for the value, its SHA-1 in hex.
-- Answers 1 if the lease was still there, 0 otherwise: then the value stays, as one with another SHA-1 does.
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
