package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
)

// Sentence 5 of worker/doc.go: while a claim is held, an application's insert does not wait, and the server's own lock
// tables show locks on the claimed rows and nowhere else.
func TestClaimLocksOnlyItsRows(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	enqueue(t, env.DB, products(100)...)
	s := openStore(t, env.DSN)
	small := limits
	small.Rows = 10
	c := claim(t, s, small)

	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, isolation := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		for _, stmt := range []string{
			"SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION TRANSACTION ISOLATION LEVEL " + isolation,
			"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', 'new')",
		} {
			if _, err := conn.ExecContext(t.Context(), stmt); err != nil {
				t.Errorf("%s: %s: %v", isolation, stmt, err)
			}
		}
	}
	if env.Flavor == servers.KindMySQL {
		checkRecordLocks(t, env, c.Rows)
	} else {
		checkLockCount(t, env, len(c.Rows))
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// checkRecordLocks reads MySQL's lock table: exclusive record locks without gaps on the primary key, of the rows.
func checkRecordLocks(t *testing.T, env *testenv.Database, rows []store.ClaimedRow) {
	t.Helper()
	locks, err := env.DB.Query(`SELECT index_name, lock_mode, lock_data FROM performance_schema.data_locks
WHERE object_schema = DATABASE() AND lock_type = 'RECORD'`)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	held := map[string]bool{}
	for locks.Next() {
		var index, mode, data string
		if err := locks.Scan(&index, &mode, &data); err != nil {
			t.Fatal(err)
		}
		if index != "PRIMARY" || mode != "X,REC_NOT_GAP" {
			t.Errorf("lock %s on %s, %s", mode, index, data)
		}
		held[data] = true
	}
	if len(held) != len(rows) {
		t.Errorf("%d records locked for %d rows", len(held), len(rows))
	}
	for _, r := range rows {
		if !held[fmt.Sprint(r.ID)] {
			t.Errorf("row %d is not locked", r.ID)
		}
	}
}

// checkLockCount reads what MariaDB tells of locks that nobody waits for: how many rows a transaction holds.
func checkLockCount(t *testing.T, env *testenv.Database, rows int) {
	t.Helper()
	var held, level string
	err := env.DB.QueryRow(`SELECT GROUP_CONCAT(trx_rows_locked), GROUP_CONCAT(trx_isolation_level) FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id IN (SELECT id FROM information_schema.processlist WHERE db = DATABASE())`).Scan(&held, &level)
	if err != nil {
		t.Fatal(err)
	}
	if held != fmt.Sprint(rows) || level != "READ COMMITTED" {
		t.Errorf("%s rows locked at %s, wanted %d", held, level, rows)
	}
}

// Several stores at once: nothing is settled twice, nothing is left, and the server's own counters of deadlocks and of
// waits for row locks do not move, although an application's insert below most rows stays uncommitted and the optimizer
// takes the table for an empty one, which makes it favour scans. The server is this test's own, so that no other test
// moves the counters.
func TestConcurrentClaimsDoNotWait(t *testing.T) {
	t.Parallel()
	env := ownMigrated(t)
	const workers, rows = 4, 8000
	pretendEmpty(t, env, rows)
	open, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec("INSERT INTO cache_outbox (id, entity, entity_id) VALUES (1, 'product', 'uncommitted')"); err != nil {
		t.Fatal(err)
	}
	before, waitsBefore := deadlocks(t, env.DB, env.Flavor), lockWaits(t, env.DB)
	var (
		mu    sync.Mutex
		seen  = map[uint64]int{}
		group sync.WaitGroup
	)
	for range workers {
		s := openStore(t, env.DSN)
		group.Go(func() {
			small := limits
			small.Rows = 397 // beyond eq_range_index_dive_limit, where the optimizer trusts its statistics
			for {
				c, err := s.Claim(context.Background(), small)
				if err != nil {
					t.Error(err)
					return
				}
				if c == nil {
					return
				}
				mu.Lock()
				for _, r := range c.Rows {
					seen[r.ID]++
				}
				mu.Unlock()
				// Rows leave in all three ways, so that every statement of a settlement meets the others'.
				done, dead := ids(c.Rows), []store.DeadRow{{ID: c.Rows[0].ID, Reason: "unknown_entity"}}
				later := []store.Delay{}
				if len(done) > 2 {
					later = append(later, store.Delay{ID: done[1], After: time.Hour})
					done = done[2:]
				} else {
					done = done[1:]
				}
				if err := c.Settle(context.Background(), store.Settlement{Done: done, Dead: dead, Delays: later}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if waits := lockWaits(t, env.DB); waits != waitsBefore {
		t.Errorf("waits for row locks went from %d to %d", waitsBefore, waits)
	}
	if err := open.Rollback(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != rows || count(t, env.DB, "cache_outbox") != 0 {
		t.Errorf("%d of %d rows seen, %d left", len(seen), rows, count(t, env.DB, "cache_outbox"))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("row %d settled %d times", id, n)
		}
	}
	if after := deadlocks(t, env.DB, env.Flavor); after != before {
		t.Errorf("deadlock counter went from %d to %d", before, after)
	}
}

// pretendEmpty fills the outbox above id 1000 and makes the server believe the statistics of an empty table: a queue
// that fills and drains comes to that by itself every now and then.
func pretendEmpty(t *testing.T, env *testenv.Database, rows int) {
	t.Helper()
	exec := func(stmt string) {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	exec("ALTER TABLE cache_outbox STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0, AUTO_INCREMENT = 1000")
	enqueue(t, env.DB, products(rows)...)
	exec("ANALYZE TABLE cache_outbox")
	exec("UPDATE mysql.innodb_table_stats SET n_rows = 0, clustered_index_size = 1 WHERE table_name = 'cache_outbox'")
	exec("FLUSH TABLES cache_outbox")
}

// deadlocks reads the server's own counter.
func deadlocks(t *testing.T, db *sql.DB, flavor servers.Kind) (n int) {
	t.Helper()
	query := "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
	if flavor == servers.KindMariaDB {
		query = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'"
	}
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lockWaits reads the server's own counter of statements that waited for a row lock.
func lockWaits(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Sentence 8: the server throws out a claimer that is silent for the claim timeout; its rows are free again.
func TestSilentClaimerIsThrownOut(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	enqueue(t, env.DB, products(3)...)
	silent, err := store.Open(store.Config{MySQL: parse(t, env.DSN), Worker: "silent", ClaimTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other := openStore(t, env.DSN)
	held := claim(t, silent, limits)
	began := time.Now()
	for free := 0; free < 3; { // a rollback frees one after the other
		c, err := other.Claim(t.Context(), limits)
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			free = len(c.Rows)
			if err := c.Release(); err != nil {
				t.Error(err)
			}
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("the rows are still held")
		}
	}
	if held.Settle(t.Context(), store.Settlement{Done: ids(held.Rows)}) == nil {
		t.Error("the silent claimer settled what it had lost")
	}
	if n := count(t, env.DB, "cache_outbox"); n != 3 {
		t.Errorf("%d rows left", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	x := parse(t, "/x")
	for want, cfg := range map[string]store.Config{
		"no mysql is given":                {Worker: "w"},
		"names no database":                {MySQL: parse(t, "user:secret@tcp(db:3306)/"), Worker: "w"},
		"claim timeout 1s: wanted whole":   {MySQL: x, Worker: "w", ClaimTimeout: time.Second},
		"claim timeout 2.5s: wanted whole": {MySQL: x, Worker: "w", ClaimTimeout: 2500 * time.Millisecond},
		`worker name "": has 0 bytes`:      {MySQL: x},
		"lookup timeout 3s: wanted 10ms":   {MySQL: x, Worker: "w", LookupTimeout: 3 * time.Second},
		"foreign_key_checks, parsetime: neither a parameter of go-sql-driver nor": {
			MySQL: parse(t, "user:secret@/db?parsetime=true&foreign_key_checks=0&autocommit=0"), Worker: "w"},
	} {
		_, err := store.Open(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, wanted %s", err, want)
		}
	}
}

func TestParseDSNRefuses(t *testing.T) {
	t.Parallel()
	for want, dsn := range map[string]string{
		"wanted user:password@tcp(host:3306": "user:secret@tcp(db:3306",
		"mysql dsn: a URL (mysql://...) is not understood; wanted user:password@tcp(host:3306)/database": "mysql://user:sec/secret@host/db",
		"a URL (mariadb+pool://...) is":           "mariadb+pool://user:secret@host",
		"cannot be read; wanted user:":            "user:secret/db", // the driver quotes it as an unknown network
		"cannot be read; wanted user":             "user:secret@host/db",
		`invalid bool value: maybe; wanted user:`: "user:secret@/db?parseTime=maybe",
		"did you forget to escape a param value?": "user:secret@tcp(h)/db?loc=US/Pacific",
	} {
		_, err := store.ParseDSN(dsn)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, wanted %s", err, want)
		}
	}
}

// An operator who lists what the server does sees the statement that writes the journal, binary as its text is: MySQL
// refuses the whole list for a statement that is not UTF-8 (3854).
func TestStatementsCanBeListed(t *testing.T) {
	t.Parallel()
	env := ownMigrated(t)
	enqueue(t, env.DB, products(100)...)
	blocker, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	if _, err := blocker.ExecContext(t.Context(), "LOCK TABLES cache_outbox_journal READ"); err != nil {
		t.Fatal(err)
	}
	c := claim(t, openStore(t, env.DSN), limits)
	entries := make([]store.Entry, len(c.Rows))
	for i, r := range c.Rows {
		entries[i] = store.Entry{ID: r.ID, Entity: r.Entity, EntityID: r.EntityID, Keys: []string{"key:" + r.EntityID}}
	}
	settled := make(chan error, 1)
	go func() {
		settled <- c.Settle(context.Background(), store.Settlement{Done: ids(c.Rows), Journal: entries})
	}()
	const seen = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO cache\\_outbox\\_journal%'"
	testenv.Eventually(t, "the statement", func() (found bool) {
		if err := blocker.QueryRowContext(t.Context(), seen).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	})
	if _, err := blocker.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Error(err)
	}
}
