-- Counts one attempt of a subject, each with its time.
-- KEYS: subject. ARGV: how many may be in a window, the window in microseconds, six bytes of the attempt's id.
-- Answers {1 if it is allowed and 0 if not, how many more would be, microseconds until another would be}.
local subject, most, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(n) return string.format('%.0f', n) end

local kind = ours(subject)
if not kind then
  return foreign
elseif kind == 'string' then -- the limit was above 20 before
  redis.call('UNLINK', subject)
end
-- The clock was set back: what lies ahead is of now.
local ahead = redis.call('ZRANGE', subject, '(' .. text(now), '+inf', 'BYSCORE')
for _, id in ipairs(ahead) do
  redis.call('ZADD', subject, text(now), id)
end
redis.call('ZREMRANGEBYSCORE', subject, '-inf', text(now - window))
local count = redis.call('ZCARD', subject)
local allowed = 0
if redis.call('ZSCORE', subject, ARGV[3]) then -- sent again
  allowed = 1
elseif count < most then
  redis.call('ZADD', subject, text(now), ARGV[3])
  count = count + 1
  allowed = 1
end
if allowed == 1 or #ahead > 0 then
  redis.call('PEXPIRE', subject, math.ceil(window / 1000) + margin)
end
local wait = 0
if count >= most then -- until that many have left the window that it has room
  local last = redis.call('ZRANGE', subject, count - most, count - most, 'WITHSCORES')
  wait = last[2] + window - now
end
return {allowed, math.max(most - count, 0), wait}
