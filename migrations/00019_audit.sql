-- What operators did. The account, the time and the id are the server's own, by defaults for which
-- an operator's account has no right to give another value, and which nothing that a session may
-- set moves: SET timestamp moves UTC_TIMESTAMP, and SET insert_id an AUTO_INCREMENT, past the end
-- of the column so that nobody else can insert. A TIMESTAMP is the same in every time zone. See
-- docs/accounts.md. Who runs the program is what it claims.

-- +goose Up
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

-- +goose Down
DROP TABLE IF EXISTS cache_outbox_audit;
