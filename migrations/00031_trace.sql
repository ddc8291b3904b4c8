-- NULL as a trace, which ORMs send for a field without a value, means no trace. It was refused (error
-- 1048), and with it the application's transaction.
--
-- Oldest code: 21. The previous binary reads and writes the column as before, but cannot read a row
-- whose trace is NULL: it reports "converting NULL to string", and leaves the row, and those of its
-- batch, to a newer worker. Such rows wait while no newer worker runs, so replace the workers before
-- applications write NULL.
--
-- MySQL changes whether a column may be NULL in place, but not in a table with a CHECK about a
-- MEDIUMTEXT, such as params (1845; seen on 9.7.4).
--
-- Alters: cache_outbox, COPY.
-- Ten million rows: 36 s, 280,000 rows/s (MySQL 9.7.4, two cores).

-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox' AND column_name = 'trace' AND is_nullable = 'YES') > 0, 'DO 0',
  'ALTER TABLE cache_outbox MODIFY COLUMN trace VARCHAR(129) NULL DEFAULT ''''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down
SET @mode = @@sql_mode, sql_mode = ''; -- NULL becomes '', without the privilege UPDATE
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox' AND column_name = 'trace' AND is_nullable = 'NO') > 0, 'DO 0',
  'ALTER TABLE cache_outbox MODIFY COLUMN trace VARCHAR(129) NOT NULL DEFAULT ''''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
SET sql_mode = @mode;
