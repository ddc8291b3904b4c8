-- Who sweeps, of all workers, and how far it is. The row "lead" is locked by whoever sweeps, so
-- that the server frees it when that process is gone; nothing is ever written to it. The row "pass"
-- is there during a scan.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_sweeper (
  name     VARCHAR(8)      NOT NULL COMMENT 'lead or pass',
  worker   VARCHAR(64)     NOT NULL,
  began_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  noted_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  patterns INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'of the pass',
  scanned  BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that it has met',
  total    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that there were; 0: not known',
  unlinked BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that it has removed',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_sweeper;
