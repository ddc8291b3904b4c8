-- KEYS: the lock. ARGV: token and a space, TTL in ms, the window of this attempt in ms by this server's clock, the end of the
-- value, which is 'w ' or ' ' and the holder, and '1' from one who waits if it is in vain.
-- A second copy of an attempt finds its token. A late one is outside of the window: it would lock again what was released,
-- for nobody. So is one whose sender knows another clock than this, which is told and tries again.
-- A 'w' behind the time tells the release that somebody waits.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local within = now >= tonumber(ARGV[3]) and now <= tonumber(ARGV[4])
if within and redis.call('SET', KEYS[1], ARGV[1] .. now .. ARGV[5], 'NX', 'PX', ARGV[2]) then
  return now
end
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  return now
end
if not within then
  return {'clock', now}
end
local left = redis.call('PTTL', KEYS[1])
if ARGV[6] == '1' then
  local head, tail = string.match(value, '^(' .. string.rep('%x', 32) .. '%S* %d+)( .*)$') -- a value of this package, without a 'w'
  if head then
    redis.call('SET', KEYS[1], head .. 'w' .. tail, 'KEEPTTL')
  end
end
return {'taken', now, value, left}
