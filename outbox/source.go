package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract: no lock (a consistent read), one row by primary key.
const sourceSQL = "SELECT id FROM cache_outbox_source WHERE one = 1"

// Source returns the random ID of the outbox in db, which does not change as long as its tables
// exist. Workers include the ID in their heartbeats. If readers use the in-process cache of package
// cache, pass the ID to cache.Memory.Sources: they use it only while these heartbeats arrive.
//
// The account needs SELECT on cache_outbox_source. If the table is missing, the error says so.
// Source is safe for concurrent use.
func Source(ctx context.Context, db Pool) (string, error) {
	var id string
	err := db.QueryRowContext(ctx, sourceSQL).Scan(&id)
	cure := ""
	switch n := mysqlerr.Number(err); {
	case err == nil:
		return id, nil
	case n == mysqlerr.NoTable:
		cure = "; run 'unstale migrate up'"
	case n == mysqlerr.NoRight:
		cure = "; GRANT SELECT ON cache_outbox_source to the account"
	case errors.Is(err, sql.ErrNoRows):
		cure = ": cache_outbox_source is empty; run INSERT INTO cache_outbox_source (id) VALUES (LEFT(SHA2(UUID(), 256), 32))"
	}
	return "", fmt.Errorf("read the id of the outbox: %w%s", err, cure)
}
