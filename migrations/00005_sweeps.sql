-- Work that outlives a batch: patterns and index sets. Append-only and without a unique key: a text
-- collation would merge different patterns, and one that is requested during a scan must survive
-- it. name is binary and unbounded, so that no pattern is ever cut into a wider one.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_sweeps (
  id           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  kind         VARCHAR(8)      NOT NULL COMMENT 'pattern or set',
  name         MEDIUMBLOB      NOT NULL,
  requested_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  not_before   DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'later than requested_at once Redis refused it',
  attempts     INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'how often Redis refused it',
  error        TEXT            NULL     COMMENT 'of the last refusal',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_sweeps;
