-- How many rows waited, for how long, and which entities were settled, by minute and worker: the
-- charts of the console.
--
-- Oldest code: 21. The previous binary neither reads nor writes the columns, and leaves them NULL.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so a run after one that was cut off asks the dictionary.
--
-- Alters: cache_outbox_minutes, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_minutes' AND column_name = 'waiting') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_minutes
     ADD COLUMN waiting INT UNSIGNED NULL COMMENT ''most rows of cache_outbox that waited at a look, counted up to 10000; NULL: no look'',
     ADD COLUMN oldest_ms BIGINT UNSIGNED NULL COMMENT ''the longest that a row had waited at a look'',
     ADD COLUMN entities TEXT NULL COMMENT ''JSON: rows_settled and within_1s by entity, the 50 most frequent; empty name: others''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_minutes' AND column_name = 'waiting') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_minutes DROP COLUMN waiting, DROP COLUMN oldest_ms, DROP COLUMN entities');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
