-- The stale entries that spot checks found, for `unstale status` and `unstale history`. Workers keep the
-- newest thousand, for 30 days.
--
-- Oldest code: 21. The previous binary neither reads nor writes the table.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_stale (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  found_at    DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  worker      VARCHAR(64)     NOT NULL,
  name        VARBINARY(1024) NOT NULL COMMENT 'the key, cut',
  row_id      BIGINT UNSIGNED NOT NULL COMMENT 'in cache_outbox, of the invalidation',
  entity      VARCHAR(65)     NOT NULL,
  entity_id   VARCHAR(256)    NOT NULL,
  trace       VARCHAR(129)    NOT NULL,
  epoch       VARCHAR(26)     NOT NULL COMMENT 'of the batch in cache_outbox_journal',
  beat        BIGINT UNSIGNED NOT NULL,
  leased_us   BIGINT UNSIGNED NOT NULL COMMENT 'microseconds since 1970, by the clock of Redis, 0: not known',
  unlinked_us BIGINT UNSIGNED NOT NULL COMMENT 'before the UNLINK, by the same clock',
  after_ms    INT UNSIGNED    NOT NULL COMMENT 'when it was found, after the UNLINK',
  ttl_ms      BIGINT UNSIGNED NOT NULL COMMENT 'that was left, 0: not known',
  held        TINYINT         NOT NULL COMMENT 'it was there during a hold',
  repaired    TINYINT         NOT NULL COMMENT 'the worker unlinked it',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_stale;
