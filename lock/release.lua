-- KEYS: the lock, its wake list. ARGV: token and a space, TTL in ms of a wake-up, or 0 for none. If somebody waits, which a 'w'
-- behind the time tells, whoever waits longest in BLPOP is woken; if nobody does, the next one that comes is, once, or nobody
-- within the TTL. Answers 0 if the lock is another's, 2 if somebody waits, or 1.
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if not string.find(value, '^%d+w', #ARGV[1] + 1) then
  return 1
end
if ARGV[2] ~= '0' then
  redis.call('DEL', KEYS[2])
  redis.call('RPUSH', KEYS[2], '1')
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return 2
