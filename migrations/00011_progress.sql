-- What figures of the progress of sweeps cannot show: that nobody knows when they will be over, and
-- why they fail as a whole. The row "failed" is there while they do.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so that a run which was cut off asks the dictionary.
--
-- Alters: cache_outbox_sweeper, INSTANT.

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_sweeper' AND column_name = 'unsure') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_sweeper
     ADD COLUMN unsure TINYINT NOT NULL DEFAULT 0 COMMENT ''1: nobody knows how long it takes'',
     ADD COLUMN error TEXT NULL COMMENT ''why sweeps fail''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_sweeper' AND column_name = 'unsure') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_sweeper DROP COLUMN unsure, DROP COLUMN error');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
