-- KEYS: the lock. ARGV: token and a space, TTL in ms. What has vanished is not taken back: another may have held it in between.
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
