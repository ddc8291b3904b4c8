-- A step of the schema for the upgrade suite, which no release has: it changes the table that all
-- workers and applications use.
--
-- Oldest code: 21. The previous binary neither reads nor writes the column, and leaves it NULL.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_upgrade (id INT NOT NULL PRIMARY KEY);
ALTER TABLE cache_outbox ADD COLUMN upgrade_test TINYINT NULL;

-- +goose Down
ALTER TABLE cache_outbox DROP COLUMN upgrade_test;
DROP TABLE IF EXISTS cache_outbox_upgrade;
