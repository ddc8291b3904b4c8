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
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
)

// Sentence 5 of worker/doc.go: while a claim is held, an application's insert does not wait, and
// the server's own lock tables show locks only on the claimed rows.
func TestClaimLocksOnlyItsRows(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(100)...)
	s := storetest.Open(t, env.DSN)
	small := storetest.Limits
	small.Rows = 10
	c := storetest.Claim(t, s, small)

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

// checkRecordLocks checks in MySQL's lock table that the locks are exclusive record locks without
// gaps on the primary key of the rows.
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

// checkLockCount checks how many rows a transaction has locked. MariaDB lists no locks unless a
// session waits for them.
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

// Several stores work concurrently: no row is settled twice and none is left. The server's own
// counters of deadlocks and of row lock waits do not move. An application's insert below most rows
// stays uncommitted, and the optimizer takes the table for an empty one, so it prefers scans. The
// test has its own server, because other tests would move the counters.
func TestConcurrentClaimsDoNotWait(t *testing.T) {
	t.Parallel()
	env := storetest.OwnMigrated(t)
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
		s := storetest.Open(t, env.DSN)
		group.Go(func() {
			small := storetest.Limits
			// beyond eq_range_index_dive_limit, where the optimizer uses its statistics
			small.Rows = 397
			for {
				c, err := s.Queue.Claim(context.Background(), small)
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
				// Rows leave in all three ways, so every statement of a settlement meets the
				// statements of others.
				done, dead := storetest.IDs(c.Rows), []store.DeadRow{{ID: c.Rows[0].ID, Reason: "unknown_entity"}}
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
	if len(seen) != rows || storetest.Count(t, env.DB, "cache_outbox") != 0 {
		t.Errorf("%d of %d rows seen, %d left", len(seen), rows, storetest.Count(t, env.DB, "cache_outbox"))
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

// pretendEmpty fills the outbox above ID 1000 and gives the server the statistics of an empty
// table. A queue that fills and drains gets into this state occasionally.
func pretendEmpty(t *testing.T, env *testenv.Database, rows int) {
	t.Helper()
	exec := func(stmt string) {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	exec("ALTER TABLE cache_outbox STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0, AUTO_INCREMENT = 1000")
	storetest.Enqueue(t, env.DB, storetest.Products(rows)...)
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

// Sentence 8: the server disconnects a claimer that sends nothing for the claim timeout, and its
// rows are free again.
func TestSilentClaimerIsThrownOut(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(3)...)
	silent, err := store.Open(session.Config{MySQL: storetest.Parse(t, env.DSN), Worker: "silent", ClaimTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other := storetest.Open(t, env.DSN)
	held := storetest.Claim(t, silent, storetest.Limits)
	began := time.Now()
	for free := 0; free < 3; { // a rollback frees the rows in sequence
		c, err := other.Queue.Claim(t.Context(), storetest.Limits)
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
	if held.Settle(t.Context(), store.Settlement{Done: storetest.IDs(held.Rows)}) == nil {
		t.Error("the idle claimer settled rows that it had lost")
	}
	if n := storetest.Count(t, env.DB, "cache_outbox"); n != 3 {
		t.Errorf("%d rows left", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	x := storetest.Parse(t, "/x")
	for want, cfg := range map[string]session.Config{
		"no mysql is given":                {Worker: "w"},
		"names no database":                {MySQL: storetest.Parse(t, "user:secret@tcp(db:3306)/"), Worker: "w"},
		"claim timeout 1s: wanted whole":   {MySQL: x, Worker: "w", ClaimTimeout: time.Second},
		"claim timeout 2.5s: wanted whole": {MySQL: x, Worker: "w", ClaimTimeout: 2500 * time.Millisecond},
		`worker name "": has 0 bytes`:      {MySQL: x},
		"lookup timeout 3s: wanted 10ms":   {MySQL: x, Worker: "w", LookupTimeout: 3 * time.Second},
		"foreign_key_checks, parsetime: neither a parameter of go-sql-driver nor": {
			MySQL: storetest.Parse(t, "user:secret@/db?parsetime=true&foreign_key_checks=0&autocommit=0"), Worker: "w"},
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
		_, err := session.ParseDSN(dsn)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, wanted %s", err, want)
		}
	}
}

// MySQL refuses to list what the server does if one of the statements is not UTF-8 (3854). The text
// of the journal is binary, but the statement that writes it can be listed.
func TestStatementsCanBeListed(t *testing.T) {
	t.Parallel()
	env := storetest.OwnMigrated(t)
	storetest.Enqueue(t, env.DB, storetest.Products(100)...)
	blocker, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	if _, err := blocker.ExecContext(t.Context(), "LOCK TABLES cache_outbox_journal READ"); err != nil {
		t.Fatal(err)
	}
	c := storetest.Claim(t, storetest.Open(t, env.DSN), storetest.Limits)
	entries := make([]store.JournalEntry, len(c.Rows))
	for i, r := range c.Rows {
		entries[i] = store.JournalEntry{ID: r.ID, Entity: r.Entity, EntityID: r.EntityID, Keys: []string{"key:" + r.EntityID}}
	}
	settled := make(chan error, 1)
	go func() {
		settled <- c.Settle(context.Background(), store.Settlement{Done: storetest.IDs(c.Rows), Journal: entries})
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
