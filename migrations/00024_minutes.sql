-- How many invalidations were in time, and what checks of the cache found, by minute and worker:
-- the figures of `unstale status` for an hour, a day and 30 days. Each worker has separate rows, so
-- no worker waits for another. After 25 hours, rows become one per hour.
--
-- Oldest code: 21. The previous binary neither reads nor writes the table.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_minutes (
  minute           INT UNSIGNED    NOT NULL COMMENT 'since 1970, of the database''s clock; of an hour, its first',
  worker           CHAR(26)        NOT NULL COMMENT 'as cache_outbox_workers.id; empty: all workers, a whole hour',
  batches          BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'settled, with a key or tag',
  rows_settled     BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'with a key or tag; no scheduled rows, no repeats',
  within_100ms     BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of rows_settled: from visible to unlinked',
  within_1s        BIGINT UNSIGNED NOT NULL DEFAULT 0,
  within_10s       BIGINT UNSIGNED NOT NULL DEFAULT 0,
  dead             BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'rows that became dead letters, not in rows_settled',
  sampled          BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of batches: with a check that is not unknown',
  entry_batches    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of sampled: with an entry found',
  stale_batches    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of sampled: with a stale entry found',
  checked          BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'keys of batches: with_entry, absent and unknown',
  with_entry       BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'an entry with a lease time was found, stale or not',
  stale            BIGINT UNSIGNED NOT NULL DEFAULT 0,
  absent           BIGINT UNSIGNED NOT NULL DEFAULT 0,
  unknown          BIGINT UNSIGNED NOT NULL DEFAULT 0,
  repaired         BIGINT UNSIGNED NOT NULL DEFAULT 0,
  shadow_reads     BIGINT UNSIGNED NOT NULL DEFAULT 0,
  confirmed        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of shadow_reads: differences',
  w_sampled        DOUBLE NOT NULL DEFAULT 0 COMMENT 'w_: of whole hours, weighted by batches / sampled of each minute',
  w_entry_batches  DOUBLE NOT NULL DEFAULT 0,
  w_stale_batches  DOUBLE NOT NULL DEFAULT 0,
  w_known          DOUBLE NOT NULL DEFAULT 0 COMMENT 'of checked without unknown',
  w_with_entry     DOUBLE NOT NULL DEFAULT 0,
  w_stale          DOUBLE NOT NULL DEFAULT 0,
  ww_sampled       DOUBLE NOT NULL DEFAULT 0 COMMENT 'ww_: with the square of the weight',
  ww_entry_batches DOUBLE NOT NULL DEFAULT 0,
  PRIMARY KEY (minute, worker)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_minutes;
