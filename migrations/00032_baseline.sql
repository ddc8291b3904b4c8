-- All tables of the outbox. The steps 1 to 32 of earlier code left the same tables, so a database
-- with version 32 has nothing to do. A database with an older version needs those steps first:
-- `unstale migrate up` refuses it, and prints the commands.
--
-- In all tables:
--   - Times are DATETIME(6) in UTC, by the clock of the database. Columns that end in _us are
--     microseconds, and by the clock of Redis if the comment names it.
--   - Text has a binary collation. A non-strict sql_mode truncates without an error, so entity,
--     entity_id and trace are one character longer than their limit: a value that fills its column
--     is known to be truncated.
--
-- Oldest code: 21. The previous binary has the same tables.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, so a run after one that was interrupted reads the
-- dictionary.
--
-- Alters: cache_outbox_version, INSTANT.

-- +goose Up

-- The queue. A row is an invalidation that committed with the change that caused it.
-- Written by applications, by the triggers of `unstale capture`, by `unstale enqueue` and by
-- `unstale invalidate`. Deleted by workers, when the keys are unlinked, or when the row moves to
-- cache_outbox_delayed or cache_outbox_dead.
-- The only index is the primary key, so that a transaction pays for one clustered insert. params is
-- text because the type JSON changes numbers: 18446744073709551616 to a double, 1.10 to 1.1. NULL
-- as a trace, which ORMs send for a field without a value, means no trace.
CREATE TABLE IF NOT EXISTS cache_outbox (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  entity     VARCHAR(65)     NOT NULL,
  entity_id  VARCHAR(256)    NOT NULL,
  params     MEDIUMTEXT      NULL,
  trace      VARCHAR(129)    NULL DEFAULT '',
  created_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (id),
  CONSTRAINT cache_outbox_params_is_json CHECK (JSON_VALID(params))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Invalidations that are due at a time: scheduled ones, retries of failed ones, and repeats that
-- the map asks for.
-- Written by applications, which insert entity, entity_id, params, trace and due_at; by workers;
-- and by `unstale dead retry`. Deleted by workers, when the keys are unlinked, or when the row
-- moves to cache_outbox_dead.
-- The index first_id finds what became of a row of cache_outbox. retry_us lets a worker notice that
-- the clock of the database was set back after a failure.
CREATE TABLE IF NOT EXISTS cache_outbox_delayed (
  id         BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
  entity     VARCHAR(65)      NOT NULL,
  entity_id  VARCHAR(256)     NOT NULL,
  params     MEDIUMTEXT       NULL,
  trace      VARCHAR(129)     NULL DEFAULT '',
  created_at DATETIME(6)      NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  due_at     DATETIME(6)      NOT NULL,
  first_id   BIGINT UNSIGNED  NOT NULL DEFAULT 0 COMMENT 'id in cache_outbox, 0 if it never was there',
  attempts   INT UNSIGNED     NOT NULL DEFAULT 0,
  repeated   TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '1: a repeat, which does not repeat again',
  reason     VARCHAR(32)      NOT NULL DEFAULT '' COMMENT 'of the last failure',
  error      TEXT             NULL     COMMENT 'of the last failure',
  retry_us   BIGINT UNSIGNED  NULL     COMMENT 'of a retry: for how long a worker has delayed it, microseconds',
  PRIMARY KEY (id),
  KEY due (due_at),
  KEY first_id (first_id),
  CONSTRAINT cache_outbox_delayed_params_is_json CHECK (JSON_VALID(params))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Dead letters: invalidations that no retry can fix, with the reason and the version of the map
-- that refused them.
-- Written by workers. Deleted by operators: `unstale dead retry` and `unstale dead discard`.
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
  KEY died (died_at),
  KEY first_id (first_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Requests of sweeps: patterns and index sets, which take longer than a batch.
-- Written by workers, when they settle the batch that asks, and by `unstale replay`. Deleted by the
-- worker that sweeps, after the second sweep: swept_at is the time of the first one, and hold_ms is
-- for how long no reader may store an entry, which the second sweep waits for.
-- No unique key: a text collation would merge different patterns, and a request that is made during
-- a scan must survive the scan. name is binary and unbounded, so no pattern is truncated to a wider
-- one. first_low and first_high are the least and the greatest ID of the rows that asked, for
-- callers that wait for a row. The index kind keeps patterns and index sets from waiting for each
-- other.
CREATE TABLE IF NOT EXISTS cache_outbox_sweeps (
  id           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  kind         VARCHAR(8)      NOT NULL COMMENT 'pattern or set',
  name         MEDIUMBLOB      NOT NULL,
  requested_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  not_before   DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'later than requested_at once Redis refused it',
  attempts     INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'how often Redis refused it',
  error        TEXT            NULL     COMMENT 'of the last refusal',
  swept_at     DATETIME(6)     NULL     COMMENT 'null: not carried out yet',
  hold_ms      INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'milliseconds',
  first_low    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'least id in cache_outbox of the rows that asked, 0: no row',
  first_high   BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'greatest id of them',
  PRIMARY KEY (id),
  KEY kind (kind),
  KEY first_high (first_high)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The sweep lock, and the state of sweeps. The worker that sweeps locks the row "lead", which the
-- server releases when that process is gone; the row is never changed. The row "pass" exists during
-- a scan and has its progress. The row "failed" exists while sweeps fail as a whole.
-- Written and deleted by workers.
CREATE TABLE IF NOT EXISTS cache_outbox_sweeper (
  name     VARCHAR(8)      NOT NULL COMMENT 'lead or pass',
  worker   VARCHAR(64)     NOT NULL,
  began_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  noted_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  patterns INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'of the pass',
  scanned  BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that it has met',
  total    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that there were; 0: not known',
  unlinked BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'names that it has removed',
  unsure   TINYINT         NOT NULL DEFAULT 0 COMMENT '1: nobody knows how long it takes',
  error    TEXT            NULL     COMMENT 'why sweeps fail',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The journal. A row is a settled batch or a finished sweep: what was unlinked, when, and by which
-- worker.
-- Written by workers, in the transaction that deletes the rows of the batch. Deleted by workers,
-- after --journal-retention.
-- internal/store has the formats of hashes, body (body.go) and journey (journal.go). hashes finds
-- the batches of an entity without unpacking each body. epoch and beat are the position that the
-- batch ends with: a Redis that has this position still has the batch. born_us is the time of Redis
-- before the first UNLINK: an entry with a later lease time was read after the change. journey has
-- the times of the batch, from the insert to the last message.
CREATE TABLE IF NOT EXISTS cache_outbox_journal (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  worker      VARCHAR(64)     NOT NULL,
  settled_at  DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  row_count   INT UNSIGNED    NOT NULL,
  map_version VARCHAR(12)     NOT NULL,
  hashes      MEDIUMBLOB      NOT NULL,
  body        LONGBLOB        NOT NULL,
  epoch       VARCHAR(26)     NOT NULL DEFAULT '' COMMENT 'empty: not protected by a beacon',
  beat        BIGINT UNSIGNED NOT NULL DEFAULT 0,
  born_us     BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'microseconds since 1970, 0: not known',
  journey     MEDIUMBLOB      NULL     COMMENT 'null: not known',
  PRIMARY KEY (id),
  KEY settled (settled_at),
  KEY beats (epoch, beat)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Summaries of the journal. A block is a run of batches, and has a row for each bucket of names, so
-- a search reads only the batches that may have the name (internal/store/summaries.go).
-- Written by workers, from the journal. Deleted by workers, when the last batch of the block is
-- gone.
-- All rows may be deleted at any time: a search then reads the journal.
CREATE TABLE IF NOT EXISTS cache_outbox_summaries (
  bucket     TINYINT UNSIGNED NOT NULL COMMENT '0 to 63: names, 64: patterns, 254: the block itself, 255: whose turn it is',
  last_id    BIGINT UNSIGNED  NOT NULL COMMENT 'in cache_outbox_journal, the last batch of the block',
  after_id   BIGINT UNSIGNED  NOT NULL COMMENT 'the block has all batches beyond this id',
  settled_at DATETIME(6)      NOT NULL COMMENT 'of the last batch, which tells whether it is still the same one',
  items      MEDIUMBLOB       NOT NULL,
  PRIMARY KEY (bucket, last_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Orders of operators to all workers: "pause", a replay in progress ("replay"), and orders that
-- must not be given twice ("run:" and an ID).
-- Written by `unstale pause`, `unstale replay` and the console. Deleted by `unstale resume`, at the
-- end of a replay, and by the next order.
CREATE TABLE IF NOT EXISTS cache_outbox_control (
  name     VARCHAR(16)  NOT NULL,
  who      VARCHAR(255) NOT NULL,
  reason   TEXT         NOT NULL,
  began_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  ends_at  DATETIME(6)  NULL     COMMENT 'null: not by itself',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The record of what operators did.
-- Written by the commands and the console, with the action. No program deletes a row.
-- The account, the time and the ID come from the server, by defaults. The account of an operator
-- has no privilege to give other values, and no setting of a session changes them: SET timestamp
-- changes UTC_TIMESTAMP, and SET insert_id an AUTO_INCREMENT, past the end of the column, so that
-- no other session can insert. A TIMESTAMP is the same in every time zone. claimed_by is what the
-- program reports. See docs/accounts.md.
CREATE TABLE IF NOT EXISTS cache_outbox_audit (
  id         BIGINT UNSIGNED NOT NULL DEFAULT (UUID_SHORT()) COMMENT 'in no order',
  at         TIMESTAMP(6)    NOT NULL DEFAULT (SYSDATE(6)),
  account    VARCHAR(400)    NOT NULL DEFAULT (CURRENT_USER()) COMMENT 'user@host of the database',
  claimed_by VARCHAR(255)    NOT NULL COMMENT 'user@host of the operating system, as the program says',
  action     VARCHAR(32)     NOT NULL,
  arguments  MEDIUMTEXT      NOT NULL COMMENT 'a JSON object',
  row_count  BIGINT UNSIGNED NOT NULL COMMENT 'rows that it was done to',
  PRIMARY KEY (id),
  KEY at (at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The status record of each worker process, for `unstale status`. A record that has not changed for
-- seconds belongs to a process that is dead, frozen or cut off; one that stopped has the state
-- "stopped".
-- Written by workers, every two seconds, each its own row. Deleted by workers, after a day: later,
-- if a second sweep may have to wait for the lease of the process.
-- stalled, stall_error and heavy_since tell rows that make no progress, and heavy rows, from a
-- backlog. map_warning is the reason why the next release refuses the map. lease_ms and
-- announced_at are about the longest lease of a reader: second sweeps also wait for the leases of
-- workers that stopped. They are not in cache_outbox_source, whose row workers never change:
-- transactions that make write tokens hold a shared lock on it. channels has where a worker
-- publishes: on the channels of the maps of all living workers. It sends heartbeats on a channel
-- only while all of them publish there.
CREATE TABLE IF NOT EXISTS cache_outbox_workers (
  id           CHAR(26)     NOT NULL COMMENT 'random, of the process: two may have one name',
  name         VARCHAR(64)  NOT NULL,
  state        VARCHAR(32)  NOT NULL COMMENT 'working, starting, healing, paused, stopped, or the state of an outage',
  error        TEXT         NULL     COMMENT 'of the outage',
  since        DATETIME(6)  NOT NULL COMMENT 'of the state',
  seen_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  drained_at   DATETIME(6)  NULL     COMMENT 'when it last found no more rows to claim',
  map_version  VARCHAR(64)  NOT NULL,
  map_error    TEXT         NULL     COMMENT 'why the file of the map as it is now is not in use',
  channel      TEXT         NOT NULL COMMENT 'of the map: where it publishes',
  format       VARCHAR(16)  NOT NULL COMMENT 'of its messages',
  map_warning  TEXT         NULL     COMMENT 'why the next release refuses the map',
  stalled      VARCHAR(16)  NULL     COMMENT 'held or behind: why rows make no progress',
  stall_error  TEXT         NULL     COMMENT 'which rows, since when, and what to do',
  heavy_since  DATETIME(6)  NULL     COMMENT 'since when it has heavy rows to process',
  lease_ms     INT UNSIGNED NULL     COMMENT 'the longest lease that a reader may have taken under its map; NULL: unknown',
  announced_at DATETIME(6)  NULL     COMMENT 'since when readers find the lease of its map; NULL: not yet',
  channels     TEXT         NULL     COMMENT 'JSON: where it publishes, and in which format; adopted: for the sake of other workers',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The figures of `unstale status` and of the charts of the console: how many invalidations were in
-- time, what checks of the cache found, and how many rows waited, by minute and worker.
-- Written by workers, each its own rows, so no worker waits for another. After 25 hours, workers
-- fold the rows of an hour to one. Deleted by workers, after 30 days.
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
  w_sampled        DOUBLE          NOT NULL DEFAULT 0 COMMENT 'w_: of whole hours, weighted by batches / sampled of each minute',
  w_entry_batches  DOUBLE          NOT NULL DEFAULT 0,
  w_stale_batches  DOUBLE          NOT NULL DEFAULT 0,
  w_known          DOUBLE          NOT NULL DEFAULT 0 COMMENT 'of checked without unknown',
  w_with_entry     DOUBLE          NOT NULL DEFAULT 0,
  w_stale          DOUBLE          NOT NULL DEFAULT 0,
  ww_sampled       DOUBLE          NOT NULL DEFAULT 0 COMMENT 'ww_: with the square of the weight',
  ww_entry_batches DOUBLE          NOT NULL DEFAULT 0,
  waiting          INT UNSIGNED    NULL COMMENT 'most rows of cache_outbox that waited at a look, counted up to 10000; NULL: no look',
  oldest_ms        BIGINT UNSIGNED NULL COMMENT 'the longest that a row had waited at a look',
  entities         TEXT            NULL COMMENT 'JSON: rows_settled and within_1s by entity, the 50 most frequent; empty name: others',
  PRIMARY KEY (minute, worker)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Stale entries that spot checks found in Redis after an UNLINK, for `unstale status` and `unstale
-- history`.
-- Written by workers. Deleted by workers: after 30 days, and beyond the newest 1,000.
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

-- Entries of the cache that differ from the database although no row waits. Shadow reads of package
-- cache report them, and a worker confirms them.
-- Written by workers. Deleted by workers, beyond the latest 1,000.
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

-- The fencing token of the last holder of each lock of package lock. A guarded transaction requires
-- that its own token is here, and keeps the row locked until it commits.
-- Written by applications, at each acquisition. Deleted by workers, --lock-retention after the last
-- acquisition.
-- Tokens are random and have no order, so nothing goes backwards after a failover, a restore or a
-- deleted row. Names are bytes: no two are equal by a collation.
CREATE TABLE IF NOT EXISTS cache_outbox_locks (
  name      VARBINARY(255) NOT NULL,
  token     BINARY(16)     NOT NULL,
  minted_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The random ID of the outbox, in one row: the key has one value. Heartbeats contain the ID, so a
-- reader knows which outbox they are from. Pub/Sub ignores the database numbers of Redis, and two
-- applications may share a channel.
-- Written here, and replaced by `unstale source replace`. Never deleted.
-- The ID goes through a variable, so that replicas with statement-based replication get the same.
CREATE TABLE IF NOT EXISTS cache_outbox_source (
  one TINYINT UNSIGNED NOT NULL DEFAULT 1,
  id  CHAR(32)         NOT NULL,
  PRIMARY KEY (one),
  CONSTRAINT cache_outbox_source_is_one CHECK (one = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
SET @source = LEFT(SHA2(CONCAT(UUID(), CONNECTION_ID(), RAND(), RAND(), UTC_TIMESTAMP(6)), 256), 32);
INSERT IGNORE INTO cache_outbox_source (one, id) VALUES (1, @source);

-- The applied migrations. goose creates the table, writes a row for each migration, and deletes the
-- row when the migration is reverted.
-- oldest is the version of the oldest code that may run on the schema, so workers of the previous
-- release can run and start after a migration, until they are replaced. The highest value counts. A
-- row gets the default of the column.
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_version' AND column_name = 'oldest') > 0, 'DO 0',
  'ALTER TABLE cache_outbox_version
     ADD COLUMN oldest BIGINT NOT NULL DEFAULT 21 COMMENT ''version of the oldest code that may run on the schema''');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;

-- +goose Down

-- One statement: without the lock on one table, no table is dropped.
DROP TABLE IF EXISTS cache_outbox, cache_outbox_delayed, cache_outbox_dead, cache_outbox_sweeps,
  cache_outbox_sweeper, cache_outbox_journal, cache_outbox_summaries, cache_outbox_control,
  cache_outbox_audit, cache_outbox_workers, cache_outbox_minutes, cache_outbox_stale,
  cache_outbox_shadow, cache_outbox_locks, cache_outbox_source;
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_version' AND column_name = 'oldest') = 0, 'DO 0',
  'ALTER TABLE cache_outbox_version DROP COLUMN oldest');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
-- of the steps before this file
DELETE FROM cache_outbox_version WHERE version_id BETWEEN 1 AND 31;
