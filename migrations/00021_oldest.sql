-- The oldest code that may run on this schema. Workers of the previous release can then run and
-- start after a migration, until they are replaced. The highest value of all rows counts.
--
-- Oldest code: 21. The previous binary runs on, but refuses to start, because it does not read this
-- column.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so that a run which was cut off asks the dictionary.
--
-- Alters: cache_outbox_version, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_version' AND column_name = 'oldest') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_version
     ADD COLUMN oldest BIGINT NOT NULL DEFAULT 21 COMMENT ''version of the oldest code that may run on the schema''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_version' AND column_name = 'oldest') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_version DROP COLUMN oldest');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
