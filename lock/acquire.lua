-- KEYS: the lock. ARGV: token and a space, TTL in ms, the window of this attempt in ms by this server's clock, holder.
-- A second copy of an attempt finds its token. A late one is outside of the window: it would lock again what was released,
-- for nobody. So is one whose sender knows another clock than this, which is told and tries again.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  return {'acquired', now}
end
if now < tonumber(ARGV[3]) or now > tonumber(ARGV[4]) then
  return {'clock', now}
end
if value then
  return {'taken', now, value, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1] .. string.format('%d', now) .. ' ' .. ARGV[5], 'PX', ARGV[2])
return {'acquired', now}
