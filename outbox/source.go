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

// Source returns the ID of the outbox in db. Its workers include it in their heartbeats: an
// application passes it as cache.Memory.Sources, and so knows whose workers to expect. It is
// random, and stays the same as long as the outbox exists, so ask once, at startup. The account
// needs SELECT on cache_outbox_source. An error names what is missing; any other error comes from
// the database, wrapped. Safe for concurrent use.
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
