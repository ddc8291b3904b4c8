package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/outbox"
)

// quick returns a pool whose sessions the server ends soon, as Guard demands it.
func (w *world) quick(seconds string) *sql.DB { return w.pool("wait_timeout", seconds) }

// pool returns a pool whose sessions set a variable.
func (w *world) pool(variable, value string) *sql.DB {
	w.Helper()
	config, err := mysql.ParseDSN(w.Env.DSN)
	must(w, err)
	config.Params[variable] = value
	connector, err := mysql.NewConnector(config)
	must(w, err)
	db := sql.OpenDB(connector)
	w.Cleanup(func() { _ = db.Close() })
	return db
}

// begin returns a transaction that ends with the test at the latest.
func (w *world) begin(db *sql.DB, opts *sql.TxOptions) *sql.Tx {
	w.Helper()
	tx, err := db.BeginTx(w.Context(), opts)
	must(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A section commits together with the rows that it enqueues, and sections of one holder run one at
// a time.
func TestInTx(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l, db := w.Locker(lock.Config{}), sqlx.NewDb(w.Env.DB, "mysql")
	must(t, l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		for range 2 {
			err := held.InTx(ctx, db, func(tx *sql.Tx) error {
				if err := add(ctx, tx, "a"); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "SAVEPOINT mine"); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "UPDATE counters SET n = 100"); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "ROLLBACK TO mine"); err != nil {
					return err
				}
				stmt, err := tx.PrepareContext(ctx, "SELECT n FROM counters WHERE name = ?")
				if err != nil {
					return err
				}
				var n int
				if err := stmt.QueryRowContext(ctx, "a").Scan(&n); err != nil {
					return err
				}
				return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "counter", ID: "a"})
			})
			if err != nil {
				return err
			}
		}
		refused := errors.New("no")
		err := held.InTx(ctx, db, func(tx *sql.Tx) error { return errors.Join(add(ctx, tx, "a"), refused) })
		wantError(t, "an error of the function", err, refused)
		return nil
	}))
	var rows int
	must(t, w.Env.DB.QueryRow("SELECT COUNT(*) FROM cache_outbox").Scan(&rows))
	if n := w.Counter("a"); n != 2 || rows != 2 {
		t.Errorf("the counter is %d, with %d rows", n, rows)
	}
}

// The transaction of a panic is rolled back and its lock released.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l := w.Locker(lock.Config{})
	func() {
		defer func() {
			if p := recover(); p != "no" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
			return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error {
				must(t, add(ctx, tx, "a"))
				panic("no")
			})
		})
	}()
	must(t, l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return add(ctx, tx, "a") })
	}))
	if n := w.Counter("a"); n != 1 {
		t.Errorf("the counter is %d", n)
	}
}

// The settings of a session are as before.
func TestSettingsAreRestored(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	db := w.quick("77")
	db.SetMaxOpenConns(1)
	w.SQL("CREATE PROCEDURE mark() SET @mark = 1")
	const ask = "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit + 0, @@wait_timeout, @@net_read_timeout, @@net_write_timeout)"
	var before, within, after string
	must(t, db.QueryRow(ask).Scan(&before))
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	must(t, held.InTx(t.Context(), db, func(tx *sql.Tx) error { return tx.QueryRow(ask).Scan(&within) }))
	must(t, db.QueryRow(ask).Scan(&after))
	if before != after {
		t.Errorf("before %s, after %s", before, after)
	}
	if !strings.HasSuffix(within, " 0 600 600 600") {
		t.Errorf("within %s", within)
	}
	for _, statement := range []string{
		"SET SESSION sort_buffer_size = 65536", "SET @mark = 1", "SELECT 1 INTO @mark", "DO GET_LOCK('mark', 0)", "SELECT GET_LOCK('mark', 0)",
		"CREATE TEMPORARY TABLE mark (id INT)",
		"SELECT 1 INTO@mark", "SELECT 1 INTO@`mark`", "SELECT `GET_LOCK`('mark', 0)", "CALL mark()",
	} {
		var id, next int64
		must(t, held.InTx(t.Context(), db, func(tx *sql.Tx) error {
			must(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
			_, err := tx.Exec(statement)
			return err
		}))
		must(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&next))
		if id == next {
			t.Errorf("the next user of the connection gets what %s has set", statement)
		}
	}
}

// A section within a section of the same lock is refused. It would wait for the outer one, and then
// commit alone.
func TestNestedSection(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	l := w.Locker(lock.Config{})
	held := w.acquireAll(l, "a", "b")
	must(t, w.addBoth(t.Context(), held))
	must(t, held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
		inner := func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }
		wantError(t, "a section of all", held.InTx(t.Context(), w.Env.DB, inner), lock.ErrNested)
		for _, one := range held.Locks() {
			wantError(t, "a section of one", one.InTx(t.Context(), w.Env.DB, inner), lock.ErrNested)
		}
		return add(t.Context(), tx, "b")
	}))
	must(t, w.addBoth(t.Context(), held))
	if a, b := w.Counter("a"), w.Counter("b"); a != 2 || b != 3 {
		t.Errorf("the counters are %d and %d", a, b)
	}
}

// The transaction of an earlier holder is refused once a later one has minted, though its lease
// seems to last.
func TestTwoHolders(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	first := w.Acquire(w.Locker(lock.Config{}), "a")
	must(t, w.redis.Del(t.Context(), key).Err()) // as a failover of Redis would
	second := w.Acquire(w.Locker(lock.Config{}), "a")
	work := func(tx *sql.Tx) error { return add(t.Context(), tx, "a") }
	must(t, context.Cause(first.Context()))
	wantError(t, "the earlier holder", first.InTx(t.Context(), w.Env.DB, work), lock.ErrLost)
	wantError(t, "its context", context.Cause(first.Context()), lock.ErrLost)
	must(t, second.InTx(t.Context(), w.Env.DB, work))
	wantError(t, "by hand", lock.Guard(t.Context(), w.begin(w.quick("10"), nil), first), lock.ErrLost)
	tx := w.begin(w.quick("10"), nil)
	must(t, lock.Guard(t.Context(), tx, second))
	must(t, work(tx))
	must(t, tx.Commit())
	if n := w.Counter("a"); n != 2 {
		t.Errorf("the counter is %d", n)
	}
}

// Guard refuses what it cannot guard, and names the cure.
func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l := w.Locker(lock.Config{})
	held := w.Acquire(l, "a")
	slow := w.begin(w.quick("28800"), nil)
	if err := lock.Guard(t.Context(), slow, held); err == nil || !strings.Contains(err.Error(), "set wait_timeout=600 in the DSN, and the pool's ConnMaxIdleTime below it") {
		t.Errorf("a session that lasts for hours: %v", err)
	}
	must(t, slow.Rollback())
	w.SQL("DELETE FROM cache_outbox_locks")
	wantError(t, "without a row", lock.Guard(t.Context(), w.begin(w.quick("10"), nil), held), lock.ErrLost)

	released := w.Acquire(l, "b")
	must(t, released.Release())
	wantError(t, "after the release", released.InTx(t.Context(), w.Env.DB, nil), lock.ErrReleased)

	elsewhere := testenv.MySQL(t)
	other := w.Acquire(l, "c")
	if err := other.InTx(t.Context(), elsewhere.DB, nil); err == nil || !strings.Contains(err.Error(), "run 'unstale migrate up', and guard transactions of the database that lock.Config.MySQL names") {
		t.Errorf("another database: %v", err)
	}
	without, err := lock.New(lock.Config{Backend: lock.Redis{Client: w.redis, Prefix: "other:"}, TTL: long, Timeout: patient})
	must(t, err)
	t.Cleanup(func() { must(t, without.Close()) })
	bare := w.Acquire(without, "a")
	wantError(t, "without MySQL", bare.InTx(t.Context(), w.Env.DB, nil), lock.ErrNoMint)
}

// A mint waits for the open transaction of an earlier holder, and its error reports that. The lock
// is then released.
func TestMintWaits(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	first := w.Acquire(w.Locker(lock.Config{}), "a")
	next := w.Locker(lock.Config{MintWait: time.Second, TTL: short})
	patientOne := w.Locker(lock.Config{})
	inside, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- first.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
			close(inside)
			select {
			case <-goOn:
			case <-t.Context().Done():
			}
			return add(t.Context(), tx, "a")
		})
	}()
	<-inside
	must(t, w.redis.Del(t.Context(), key).Err())
	_, err := next.Acquire(t.Context(), "a")
	wantError(t, "a mint", err, lock.ErrGuardOpen)
	if err == nil || !strings.Contains(err.Error(), "a guarded transaction is still open") {
		t.Errorf("it says %v", err)
	}
	if n := w.redis.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the lock was not released")
	}
	// One that gives up leaves the lock free while its mint waits.
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := patientOne.Acquire(ctx, "a")
		gone <- err
	}()
	testenv.Eventually(t, "its mint to wait", func() bool { return w.waits("cache_outbox_locks") })
	giveUp()
	wantError(t, "giving up", <-gone, context.Canceled)
	if n := w.redis.Exists(t.Context(), key).Val(); n != 1 {
		t.Error("the lock was released before its mint was over")
	}
	close(goOn)
	must(t, <-done)
	testenv.Eventually(t, "its release", func() bool { return w.redis.Exists(t.Context(), key).Val() == 0 })
	if n := w.Counter("a"); n != 1 {
		t.Errorf("the counter is %d", n)
	}
}

// A statement that was prepared on the pool is refused, and one that was prepared on the
// transaction is not.
func TestPreparedStatements(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	const query = "UPDATE counters SET n = n + ? WHERE name = 'a'"
	elsewhere, err := w.Env.DB.PrepareContext(t.Context(), query)
	must(t, err)
	defer elsewhere.Close()
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	must(t, held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(t.Context(), elsewhere).ExecContext(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "from different database") {
			t.Errorf("prepared on the pool: %v", err)
		}
		here, err := tx.PrepareContext(t.Context(), query)
		if err != nil {
			return err
		}
		_, err = here.ExecContext(t.Context(), 2)
		return err
	}))
	if n := w.Counter("a"); n != 2 {
		t.Errorf("the counter is %d", n)
	}
}

// Many mints that wait for frozen sections leave sessions for the others.
func TestMintsWaitAside(t *testing.T) {
	t.Parallel()
	w := withMySQL(t)
	db := w.quick("600")
	first, next := w.Locker(lock.Config{}), w.Locker(lock.Config{})
	waiting, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var group sync.WaitGroup
	defer group.Wait()
	for i := range 9 { // more than there are sessions at first
		name := fmt.Sprint("frozen", i)
		tx := w.begin(db, nil)
		must(t, lock.Guard(t.Context(), tx, w.Acquire(first, name)))
		defer func() { _ = tx.Rollback() }()
		must(t, w.redis.Del(t.Context(), "lock:{"+name+"}").Err())
		group.Go(func() {
			_, err := next.Acquire(waiting, name)
			wantError(t, "giving up", err, context.Canceled)
		})
	}
	testenv.Eventually(t, "eight mints to wait", func() (enough bool) {
		must(t, w.Env.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) >= 8 FROM information_schema.processlist WHERE db = ? AND info LIKE 'INSERT INTO cache_outbox_locks%'",
			w.Env.Name).Scan(&enough))
		return enough
	})
	w.Acquire(next, "free")
	giveUp()
}

// Why InTx begins its transaction itself: a snapshot from before the acquisition loses an update,
// with a good token.
func TestEarlySnapshot(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l := w.Locker(lock.Config{})
	early := w.begin(w.quick("10"), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	var n int
	must(t, early.QueryRow("SELECT n FROM counters WHERE name = 'a'").Scan(&n)) // the snapshot
	work := func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error { return add(ctx, tx, "a") })
	}
	must(t, l.Do(t.Context(), "a", work))
	held := w.Acquire(l, "a")
	if w.snapshotIsolation() { // the server refuses what loses an update
		if err := lock.Guard(t.Context(), early, held); mysqlerr.Number(err) != mysqlerr.RecordChanged {
			t.Fatalf("Guard after a snapshot: %v", err)
		}
		must(t, early.Rollback())
	} else {
		must(t, lock.Guard(t.Context(), early, held))
		must(t, add(t.Context(), early, "a"))
		must(t, early.Commit())
	}
	if n := w.Counter("a"); n != 1 {
		t.Fatalf("the counter is %d: the early snapshot shows nothing", n)
	}
	must(t, held.Release())
	must(t, l.Do(t.Context(), "a", work))
	must(t, l.Do(t.Context(), "a", work))
	if n := w.Counter("a"); n != 3 {
		t.Errorf("the counter is %d after two sections in InTx", n)
	}
}

// snapshotIsolation reports whether a transaction cannot lock a row that changed after its snapshot.
func (w *world) snapshotIsolation() bool {
	w.Helper()
	var name, value string
	err := w.Env.DB.QueryRow("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
	if !errors.Is(err, sql.ErrNoRows) {
		must(w, err)
	}
	return value == "ON"
}

// Names are bytes: what collations take for equal are different locks.
func TestNamesAreBytes(t *testing.T) {
	t.Parallel()
	w := withMySQL(t)
	l := w.Locker(lock.Config{})
	for _, name := range []string{"a", "A", "ä", "a ", "a\x00", "\xff", strings.Repeat("x", lock.MaxName)} {
		held := w.Acquire(l, name)
		must(t, held.InTx(t.Context(), w.Env.DB, func(*sql.Tx) error { return nil }))
	}
	for _, name := range []string{"", strings.Repeat("x", lock.MaxName+1), "a{b", "}"} {
		if _, err := l.Acquire(t.Context(), name); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
