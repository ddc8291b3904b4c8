// Package storetest has what the tests of the parts of package store share.
package storetest

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/storetest/schematest"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// Limits allow a claim of up to 1,000 rows.
var Limits = store.ClaimLimits{Rows: 1000, Bytes: 8 << 20, ParamsBytes: 64 << 10}

// Migrated returns an empty database with the outbox in it.
func Migrated(t testing.TB) *testenv.Database {
	t.Helper()
	env := testenv.MySQL(t)
	schematest.Up(t, env.DB)
	return env
}

// Parse reads a DSN that is well.
func Parse(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := session.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Open opens a Store that the server keeps for three seconds.
func Open(t testing.TB, dsn string) *store.Store {
	t.Helper()
	return OpenPatient(t, dsn, 3*time.Second)
}

// OpenPatient opens a Store with a claim timeout.
func OpenPatient(t testing.TB, dsn string, claimTimeout time.Duration) *store.Store {
	t.Helper()
	s, err := store.Open(session.Config{MySQL: Parse(t, dsn), Worker: "test", ClaimTimeout: claimTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Enqueue commits invalidations.
func Enqueue(t testing.TB, db *sql.DB, invs ...outbox.Invalidation) {
	t.Helper()
	err := outbox.InTx(t.Context(), db, func(tx *sql.Tx) error { return outbox.Enqueue(t.Context(), tx, invs...) })
	if err != nil {
		t.Fatal(err)
	}
}

// Products are invalidations of products 1 to n.
func Products(n int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "product", ID: fmt.Sprint(i + 1)}
	}
	return invs
}

// Claim claims rows, which must be there.
func Claim(t testing.TB, s *store.Store, l store.ClaimLimits) *store.Claim {
	t.Helper()
	c, err := s.Queue.Claim(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		t.Fatal("nothing to claim")
	}
	return c
}

// Count counts the rows of a table.
func Count(t testing.TB, db *sql.DB, table string) int {
	t.Helper()
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// IDs lists the IDs of rows.
func IDs(rows []store.ClaimedRow) []uint64 {
	out := make([]uint64, len(rows))
	for i := range rows {
		out[i] = rows[i].ID
	}
	return out
}

// OwnMigrated returns a migrated database on a server that no other test uses.
func OwnMigrated(t testing.TB) *testenv.Database {
	t.Helper()
	env := testenv.OwnDatabase(t)
	schematest.Up(t, env.DB)
	return env
}

// InsertAt inserts a row with an ID that an administrator chose, 0 included.
func InsertAt(t *testing.T, env *testenv.Database, id uint64) {
	t.Helper()
	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')",
		fmt.Sprintf("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (%d, 'product', '1')", id),
		"SET sql_mode = DEFAULT",
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// ClaimHeal claims what it can and returns the keys.
func ClaimHeal(t *testing.T, s *store.Store, after store.Position) (r *store.HealClaim, keys []string) {
	t.Helper()
	r, err := s.Journal.ClaimHeal(t.Context(), after, store.MaxHeal)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return nil, nil
	}
	for _, b := range r.Batches {
		for _, e := range b.Entries {
			keys = append(keys, e.Keys...)
		}
	}
	return r, keys
}

// DeadLetter claims everything that waits and dead-letters it for a reason.
func DeadLetter(t *testing.T, s *store.Store, due bool, reason string) {
	t.Helper()
	claim := s.Queue.Claim
	if due {
		claim = s.Queue.ClaimDue
	}
	c, err := claim(t.Context(), Limits)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	settlement := store.Settlement{MapVersion: "m1"}
	for _, r := range c.Rows {
		settlement.Dead = append(settlement.Dead, store.DeadRow{ID: r.ID, Reason: reason, Error: "why"})
	}
	if err := c.Settle(t.Context(), settlement); err != nil {
		t.Fatal(err)
	}
}

// Position returns a place in the order of what Redis acknowledged.
func Position(epoch string, n uint64) store.Position { return store.Position{Epoch: epoch, N: n} }
