-- Entries of the cache that differ from the database although no row waits: a worker has confirmed
-- what shadow reads of package cache report. Workers keep the latest 1,000.
--
-- Oldest code: 21. The previous binary neither reads nor writes the table.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_shadow (
  id           BINARY(20)      NOT NULL COMMENT 'SHA-1 of cache_key and of the entry',
  cache_key    VARBINARY(1024) NOT NULL,
  tags         TEXT            NOT NULL COMMENT 'of the entry: a JSON list',
  entities     TEXT            NOT NULL COMMENT 'whose rows reach the key by the map: a JSON list',
  outcome      VARCHAR(16)     NOT NULL COMMENT 'no_row: nothing was unlinked since leased_at; survived: it was',
  process      VARCHAR(128)    NOT NULL COMMENT 'that reported it',
  leased_at    DATETIME(6)     NOT NULL COMMENT 'lease time of the entry, of Redis''s clock',
  loaded_at    DATETIME(6)     NOT NULL COMMENT 'of the load that differs, of Redis''s clock',
  confirmed_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (id),
  KEY confirmed (confirmed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_shadow;
