-- The longest lease that a reader may have taken under the map of a worker, and since when the
-- worker has announced its own: second sweeps wait for leases of workers that have stopped.
--
-- The columns are not in cache_outbox_source: transactions that make write tokens hold a shared
-- lock on its row until their commit, so it must never be written.
--
-- Oldest code: 21. The previous binary neither reads nor writes the columns, and leaves them NULL.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so a run after one that was cut off asks the dictionary.
--
-- Alters: cache_outbox_workers, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'lease_ms') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers
     ADD COLUMN lease_ms INT UNSIGNED NULL COMMENT ''the longest lease that a reader may have taken under its map; NULL: unknown'',
     ADD COLUMN announced_at DATETIME(6) NULL COMMENT ''since when readers find the lease of its map; NULL: not yet''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_workers' AND column_name = 'lease_ms') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_workers DROP COLUMN lease_ms, DROP COLUMN announced_at');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
