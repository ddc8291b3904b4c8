-- On which channels each worker publishes: a worker sends heartbeats on a channel only while all
-- living workers publish there, and publishes on the channels of their maps.
--
-- Oldest code: 21. The previous binary neither reads nor writes the column, and leaves it NULL: it
-- publishes on the channel of its map.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so a run after one that was cut off asks the dictionary.
--
-- Alters: cache_outbox_workers, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'channels') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers
     ADD COLUMN channels TEXT NULL COMMENT ''JSON: where it publishes, and in which format; adopted: for the sake of other workers''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'channels') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers DROP COLUMN channels');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
