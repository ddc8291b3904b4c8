-- What operators tell all workers, one row a word: "pause" is the only one.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_control (
  name     VARCHAR(16)  NOT NULL,
  who      VARCHAR(255) NOT NULL,
  reason   TEXT         NOT NULL,
  began_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  ends_at  DATETIME(6)  NULL     COMMENT 'null: not by itself',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_control;
