-- Gives a lease back whose load failed.
-- KEYS: lease. ARGV: the lease's text. Answers 1 if it was still there, 0 otherwise.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('UNLINK', KEYS[1])
end
return 0
