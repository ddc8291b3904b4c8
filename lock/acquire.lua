-- KEYS: the lock. ARGV: token and a space, TTL in ms, the window of this attempt in ms by this server's clock, holder.
-- A second copy of an attempt finds its token. A late one is outside of the window: it would lock again what was released,
-- for nobody. So is one whose sender knows another clock than this, which is told and tries again.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local within = now >= tonumber(ARGV[3]) and now <= tonumber(ARGV[4])
if within and redis.call('SET', KEYS[1], ARGV[1] .. now .. ' ' .. ARGV[5], 'NX', 'PX', ARGV[2]) then
  return {'acquired', now}
end
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  return {'acquired', now}
end
if not within then
  return {'clock', now}
end
return {'taken', now, value, redis.call('PTTL', KEYS[1])}
