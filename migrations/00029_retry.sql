-- How long the worker delayed a row that failed, so that its retry does not wait for the database's
-- clock to come back to a time to which it was set forward before.
--
-- Oldest code: 21. The previous binary neither reads nor writes the column, and leaves it as it is.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so a run after one that was cut off asks the dictionary.
--
-- Alters: cache_outbox_delayed, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_delayed' AND column_name = 'retry_us') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_delayed ADD COLUMN retry_us BIGINT UNSIGNED NULL COMMENT ''of a retry: for how long a worker has delayed it, microseconds''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_delayed' AND column_name = 'retry_us') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_delayed DROP COLUMN retry_us');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
