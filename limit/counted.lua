-- Counts one attempt of a subject in two counters: of the running span, which is as long as a window, and of the one before, of
-- which that part counts which is still in the window.
-- KEYS: subject. ARGV: how many may be in a window, the window in microseconds, three bytes of the attempt's id.
-- Answers {1 if it is allowed and 0 if not, how many more would be, microseconds until another would be}.
-- The value: when the span began, in microseconds, its count, that of the one before, and the ids of the last four attempts. With 24 bits
-- of each it has 28 bytes, the most for which Redis takes no more memory than for what stands before them.
local subject, most, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local id = ARGV[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local began, count, before, ids = now, 0, 0, ''
local kind, value = ours(subject)
if not kind then
  return foreign
elseif kind == 'string' then
  began, count, before = struct.unpack('>dI4I4', value)
  ids = string.sub(value, 17)
elseif kind == 'zset' then -- an attempt each, by a lower limit or an earlier release: they become the count of a span
  redis.call('ZREMRANGEBYSCORE', subject, '-inf', string.format('%.0f', now - window))
  local first = redis.call('ZRANGE', subject, 0, 0, 'WITHSCORES')[2]
  if first then
    began, count = tonumber(first), redis.call('ZCARD', subject)
  end
end
if kind == 'zset' then
  redis.call('UNLINK', subject)
end
local changed = kind == 'zset'
if began > now then -- the clock was set back
  changed = true
  began = now
elseif now - began >= 2 * window then
  began, count, before = now, 0, 0
elseif now - began >= window then
  began, count, before = began + window, 0, count
end
local function counted() return before * (1 - (now - began) / window) + count end

local allowed, known = 0, false
for i = 1, #ids, 3 do
  known = known or string.sub(ids, i, i + 2) == id
end
if known then -- sent again
  allowed = 1
elseif counted() + 1 <= most then
  allowed, changed = 1, true
  count, ids = count + 1, string.sub(id .. ids, 1, 12)
end
if changed then
  local value = struct.pack('>dI4I4', began, count, before) .. ids
  redis.call('SET', subject, value, 'PX', math.ceil((began + 2 * window - now) / 1000) + margin)
end
local wait = 0
if counted() + 1 > most then
  if count + 1 <= most then -- when enough of the span before has left the window
    wait = (1 - (most - 1 - count) / before) * window - (now - began)
  else -- when enough of this one has
    wait = window - (now - began) + (1 - (most - 1) / count) * window
  end
end
return {allowed, math.max(math.floor(most - counted()), 0), math.ceil(math.max(wait, 0))}
