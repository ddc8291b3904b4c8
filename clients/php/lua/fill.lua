-- Stores what was loaded under a lease, and gives the lease back.
-- KEYS: lease, tombstone, value. ARGV: the lease's text, the value, its time in milliseconds.
-- Answers 1 if the value is stored, 0 if it must not be: the lease is another's or gone, or nothing may be stored now.
-- A copy that comes after the value was stored finds the same value, and answers 1 too.
if redis.call('GET', KEYS[2]) then
  return 0
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  if redis.call('GET', KEYS[3]) == ARGV[2] then
    return 1
  end
  return 0
end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('UNLINK', KEYS[1])
return 1
