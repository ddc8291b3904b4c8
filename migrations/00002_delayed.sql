-- Rows with a time: scheduled by the application, waiting after a failure of their own, or repeats
-- that the map asked for. Plain SQL schedules by inserting entity, entity_id, params and due_at
-- (UTC).

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_delayed (
  id         BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
  entity     VARCHAR(65)      NOT NULL,
  entity_id  VARCHAR(256)     NOT NULL,
  params     MEDIUMTEXT       NULL,
  trace      VARCHAR(129)     NOT NULL DEFAULT '',
  created_at DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  due_at     DATETIME(6)      NOT NULL,
  first_id   BIGINT UNSIGNED  NOT NULL DEFAULT 0 COMMENT 'id in cache_outbox, 0 if it never was there',
  attempts   INT UNSIGNED     NOT NULL DEFAULT 0,
  repeated   TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '1: a repeat, which does not repeat again',
  reason     VARCHAR(32)      NOT NULL DEFAULT '' COMMENT 'of the last failure',
  error      TEXT             NULL     COMMENT 'of the last failure',
  PRIMARY KEY (id),
  KEY due (due_at),
  CONSTRAINT cache_outbox_delayed_params_is_json CHECK (JSON_VALID(params))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_delayed;
