-- The token of the last holder of each lock of package lock, minted at its acquisition. A guarded
-- transaction demands that its own token is here, and has the row locked until it commits. Tokens
-- are random and have no order, so that nothing runs backwards after a failover, a restore or a
-- removed row. Names are exact bytes: no two are equal by collation.

-- +goose Up
CREATE TABLE IF NOT EXISTS cache_outbox_locks (
  name      VARBINARY(255) NOT NULL,
  token     BINARY(16)     NOT NULL,
  minted_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_locks;
