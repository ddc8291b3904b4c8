package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract: no lock (a consistent read), one row by primary key. The count is 1, unless a proxy sends
// the statement to several servers.
const sourceSQL = "SELECT COALESCE(MIN(id), ''), COUNT(*) FROM cache_outbox_source WHERE one = 1"

// severalOutboxes is the error of a database that has several outboxes.
func severalOutboxes(n int) error {
	return fmt.Errorf("cache_outbox_source has %d rows, as in a keyspace with several shards, and each shard has an outbox of its own; connect to one shard", n)
}

// Source returns the random ID of the outbox in db, which does not change as long as its tables
// exist. Workers include the ID in their heartbeats. If readers use the in-process cache of package
// cache, pass the ID to cache.Memory.Sources: they use it only while these heartbeats arrive.
//
// The account needs SELECT on cache_outbox_source. If the table is missing, or has several rows
// because db has several shards, the error says so.
// Source is safe for concurrent use.
func Source(ctx context.Context, db Pool) (string, error) {
	var id string
	var outboxes int
	err := db.QueryRowContext(ctx, sourceSQL).Scan(&id, &outboxes)
	cure := ""
	switch n := mysqlerr.Number(err); {
	case outboxes == 1:
		return id, nil
	case outboxes > 1:
		err = severalOutboxes(outboxes)
	case n == mysqlerr.NoTable:
		cure = "; run 'unstale migrate up'"
	case n == mysqlerr.NoRight:
		cure = "; GRANT SELECT ON cache_outbox_source to the account"
	case err == nil:
		err = sql.ErrNoRows
		cure = ": cache_outbox_source is empty; run INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(UUID(), 256), 32))"
	}
	return "", fmt.Errorf("read the id of the outbox: %w%s", err, cure)
}
