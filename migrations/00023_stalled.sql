-- Why rows make no progress, as a worker that works has found, and since when it processes heavy
-- rows: `unstale status` tells both apart from a backlog.
--
-- Oldest code: 21. The previous binary neither reads nor writes the columns, and leaves them NULL.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so that a run which was cut off asks the dictionary.
--
-- Alters: cache_outbox_workers, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'stalled') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers
     ADD COLUMN stalled VARCHAR(16) NULL COMMENT ''held or behind: why rows make no progress'',
     ADD COLUMN stall_error TEXT NULL COMMENT ''which rows, since when, and what to do'',
     ADD COLUMN heavy_since DATETIME(6) NULL COMMENT ''since when it has heavy rows to process''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'stalled') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers DROP COLUMN stalled, DROP COLUMN stall_error, DROP COLUMN heavy_since');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
