-- The random id of this outbox. Heartbeats name it, so that a reader knows whose worker it hears:
-- Pub/Sub ignores Redis' database numbers, and two applications may share a channel.
--
-- The id goes through a variable, so that replicas of a server with statement-based replication
-- have the same one. The table has one row for good: its key has one value.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_source (
  one TINYINT UNSIGNED NOT NULL DEFAULT 1,
  id  CHAR(32)         NOT NULL,
  PRIMARY KEY (one),
  CONSTRAINT cache_outbox_source_is_one CHECK (one = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
SET @source = LEFT(SHA2(CONCAT(UUID(), CONNECTION_ID(), RAND(), RAND(), UTC_TIMESTAMP(6)), 256), 32);
INSERT IGNORE INTO cache_outbox_source (one, id) VALUES (1, @source);

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_source;
