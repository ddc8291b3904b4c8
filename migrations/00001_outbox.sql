-- The hot table: applications append, workers claim and delete.
--
-- A primary key and nothing else, so that an application's transaction pays one clustered insert.
-- Text columns state a binary collation and are one character wider than the limit: a non-strict
-- sql_mode cuts silently, so a value of full width is known to be cut. params is text, not JSON:
-- the JSON type would turn 18446744073709551616 into a double and 1.10 into 1.1.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  entity     VARCHAR(65)     NOT NULL,
  entity_id  VARCHAR(256)    NOT NULL,
  params     MEDIUMTEXT      NULL,
  trace      VARCHAR(129)    NOT NULL DEFAULT '',
  created_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (id),
  CONSTRAINT cache_outbox_params_is_json CHECK (JSON_VALID(params))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox;
