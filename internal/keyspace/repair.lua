-- Unlinks an entry and its lease, if the entry still begins as it did when it was found to be stale.
-- The beginning has the lease time in microseconds. A newer entry begins differently and stays.
-- KEYS: entry, lease (if it can have one), tombstone (with "held").
-- ARGV: the beginning; "held": only while the key has its tombstone.
-- Answers 1 if it was the same.
if redis.call('GETRANGE', KEYS[1], 0, 95) ~= ARGV[1] then
  return 0
end
if ARGV[2] == 'held' and not redis.call('GET', KEYS[3]) then
  return 0
end
redis.call('UNLINK', KEYS[1])
if KEYS[2] then
  redis.call('UNLINK', KEYS[2])
end
return 1
