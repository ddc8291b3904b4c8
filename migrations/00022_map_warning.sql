-- Why the next release refuses the map that a worker uses: `unstale status` warns of it.
--
-- Oldest code: 21. The previous binary neither reads nor writes the column, and leaves it NULL.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so that a run which was cut off asks the dictionary.
--
-- Alters: cache_outbox_workers, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'map_warning') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers
     ADD COLUMN map_warning TEXT NULL COMMENT ''why the next release refuses the map''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'map_warning') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers DROP COLUMN map_warning');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
