package outbox_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// migrated returns an empty database with the outbox in it.
func migrated(t testing.TB) *testenv.Database {
	t.Helper()
	env := testenv.MySQL(t)
	schematest.Up(t, env.DB)
	return env
}

func enqueue(t testing.TB, db *sql.DB, invs ...outbox.Invalidation) {
	t.Helper()
	err := outbox.InTx(t.Context(), db, func(tx *sql.Tx) error { return outbox.Enqueue(t.Context(), tx, invs...) })
	if err != nil {
		t.Fatal(err)
	}
}

func products(n int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "product", ID: fmt.Sprint(i + 1)}
	}
	return invs
}

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
