-- Removes what is counted of a subject.
-- KEYS: subject.
if not ours(KEYS[1]) then
  return foreign
end
return redis.call('UNLINK', KEYS[1])
