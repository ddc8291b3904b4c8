-- Dead letters: rows that no retry can cure, each with its reason, the error and the map that
-- refused it.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_dead (
  id          BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
  entity      VARCHAR(65)      NOT NULL,
  entity_id   VARCHAR(256)     NOT NULL,
  params      MEDIUMTEXT       NULL,
  trace       VARCHAR(129)     NOT NULL DEFAULT '',
  created_at  DATETIME(6)      NOT NULL,
  died_at     DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  first_id    BIGINT UNSIGNED  NOT NULL,
  attempts    INT UNSIGNED     NOT NULL DEFAULT 0,
  repeated    TINYINT UNSIGNED NOT NULL DEFAULT 0,
  reason      VARCHAR(32)      NOT NULL,
  error       TEXT             NOT NULL,
  map_version VARCHAR(12)      NOT NULL,
  PRIMARY KEY (id),
  KEY reason (reason),
  KEY died (died_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_dead;
