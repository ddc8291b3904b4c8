-- What each worker process is at, noted by itself every two seconds: `unstale status` says from it
-- why rows wait. A row that is silent is that of a process which is dead, frozen or away from the
-- server; one that was stopped says so.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_workers (
  id          CHAR(26)     NOT NULL COMMENT 'random, of the process: two may have one name',
  name        VARCHAR(64)  NOT NULL,
  state       VARCHAR(32)  NOT NULL COMMENT 'working, starting, healing, paused, stopped, or the state of an outage',
  error       TEXT         NULL     COMMENT 'of the outage',
  since       DATETIME(6)  NOT NULL COMMENT 'of the state',
  seen_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  drained_at  DATETIME(6)  NULL     COMMENT 'when it last found no more rows to claim',
  map_version VARCHAR(64)  NOT NULL,
  map_error   TEXT         NULL     COMMENT 'why the file of the map as it is now is not in use',
  channel     TEXT         NOT NULL COMMENT 'of the map: where it publishes',
  format      VARCHAR(16)  NOT NULL COMMENT 'of its messages',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_workers;
