-- One row per settled batch: what was unlinked, when, by whom. hashes finds an entity's batches
-- without unpacking every body; both are written by internal/store (body.go has the format).

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_journal (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  worker      VARCHAR(64)     NOT NULL,
  settled_at  DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  row_count   INT UNSIGNED    NOT NULL,
  map_version VARCHAR(12)     NOT NULL,
  hashes      MEDIUMBLOB      NOT NULL,
  body        LONGBLOB        NOT NULL,
  PRIMARY KEY (id),
  KEY settled (settled_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_journal;
