package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// swallow ignores an error, as careless code does, and continues. The update that follows must not
// be committed.
func swallow(t *testing.T, w *world, what string, wanted uint16, bad func(tx *sql.Tx) error) {
	t.Helper()
	l := w.Locker(lock.Config{})
	var first error
	err := l.Do(t.Context(), "a", func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, w.Env.DB, func(tx *sql.Tx) error {
			must(t, add(ctx, tx, "a"))
			first = bad(tx)
			_, next := tx.ExecContext(ctx, "UPDATE counters SET n = 100 WHERE name = 'a'")
			wantError(t, what+": the next statement", next, lock.ErrBroken)
			_, next = tx.QueryContext(ctx, "SELECT 1")
			wantError(t, what+": the next query", next, lock.ErrBroken)
			return nil
		})
	})
	wantError(t, what, err, lock.ErrBroken)
	if n := mysqlerr.Number(first); first == nil || n != wanted {
		t.Errorf("%s: it began with %v", what, first)
	}
	if n := w.Counter("a"); n != 0 {
		t.Errorf("%s: the counter is %d", what, n)
	}
}

// After an error nothing of the transaction is kept, and nothing that follows it.
func TestErrorsBreak(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	swallow(t, w, "a duplicate", 1062, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO counters VALUES ('b', 7)")
		return err
	})
	swallow(t, w, "an error of a prepared statement", 1062, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO counters VALUES (?, 7)", "b")
		return err
	})
	swallow(t, w, "an error of a row", 1242, func(tx *sql.Tx) error {
		var n int
		return tx.QueryRow("SELECT (SELECT n FROM counters WHERE name >= c.name) FROM counters AS c ORDER BY name DESC").Scan(&n)
	})
	swallow(t, w, "DDL", 0, func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE other (id INT)")
		return err
	})
	swallow(t, w, "a COMMIT in text", 0, func(tx *sql.Tx) error {
		_, err := tx.Exec("/* done */ commit")
		return err
	})
	swallow(t, w, "a lost connection", 0, func(tx *sql.Tx) error {
		var id int64
		if err := tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		w.SQL(fmt.Sprint("KILL CONNECTION ", id))
		_, err := tx.Exec("DO 1")
		return err
	})
	blocker := w.begin(w.Env.DB, nil)
	_, err := blocker.Exec("UPDATE counters SET n = 0 WHERE name = 'b'")
	must(t, err)
	swallow(t, w, "a lock wait", mysqlerr.LockTimeout, func(tx *sql.Tx) error {
		if _, err := tx.Exec("SET innodb_lock_wait_timeout = 1"); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE counters SET n = 1 WHERE name = 'b'")
		return err
	})
}

// A deadlock ends the transaction in the server, which would commit what follows by itself.
func TestDeadlockBreaks(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a", "b")
	other := w.begin(w.Env.DB, nil)
	for _, statement := range []string{ // the transaction that has changed more rows survives
		"INSERT INTO counters VALUES ('c', 0), ('d', 0), ('e', 0), ('f', 0), ('g', 0)", "UPDATE counters SET n = n + 1 WHERE name > 'a'",
	} {
		_, err := other.Exec(statement)
		must(t, err)
	}
	waits := make(chan error)
	swallow(t, w, "a deadlock", mysqlerr.Deadlock, func(tx *sql.Tx) error {
		go func() {
			_, err := other.Exec("UPDATE counters SET n = n + 0 WHERE name = 'a'")
			waits <- errors.Join(err, other.Rollback())
		}()
		testenv.Eventually(t, "the other to wait", func() bool { return w.waits("counters") })
		_, err := tx.Exec("UPDATE counters SET n = 1 WHERE name = 'b'")
		return err
	})
	must(t, <-waits)
}

// A *sql.Tx of InTx is ended by InTx.
func TestEndingItself(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	for what, end := range map[string]func(tx *sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		err := held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
			must(t, add(t.Context(), tx, "a"))
			_ = end(tx)
			return nil
		})
		wantError(t, what, err, lock.ErrBroken)
		if err == nil || !strings.Contains(err.Error(), what+" was called") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := w.Counter("a"); n != 0 {
		t.Errorf("the counter is %d", n)
	}
}

// Rows that the function leaves open prevent the commit of its transaction, and the error reports
// them.
func TestOpenRows(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	w.SQL("CREATE TABLE much (id INT PRIMARY KEY, text TEXT)")
	for id := range 100 { // more than the driver reads in one packet
		w.SQL("INSERT INTO much VALUES (?, REPEAT('x', 1000))", id)
	}
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	var open *sql.Rows
	err := held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
		must(t, add(t.Context(), tx, "a"))
		rows, err := tx.QueryContext(t.Context(), "SELECT text FROM much")
		open = rows
		return err
	})
	wantError(t, "the section", err, lock.ErrBroken)
	if !strings.Contains(fmt.Sprint(err), "rows were not closed") {
		t.Error(err)
	}
	if open != nil {
		_ = open.Close()
	}
	if n := w.Counter("a"); n != 0 {
		t.Errorf("the counter is %d", n)
	}
}

// The savepoint reveals a commit in a procedure, and later statements are not committed.
func TestHiddenCommit(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l := w.Locker(lock.Config{})
	for name, body := range map[string]string{"commits": "COMMIT", "rolls_back": "ROLLBACK", "defines": "CREATE TABLE t (id INT)"} {
		w.SQL("UPDATE counters SET n = 0")
		w.SQL(fmt.Sprintf("CREATE PROCEDURE %s() %s", name, body))
		held := w.Acquire(l, "a")
		err := held.InTx(t.Context(), w.Env.DB, func(tx *sql.Tx) error {
			if _, err := tx.Exec("CALL " + name + "()"); err != nil {
				return err
			}
			_, err := tx.Exec("UPDATE counters SET n = 100 WHERE name = 'a'")
			return err
		})
		wantError(t, name, err, lock.ErrBroken)
		if n := w.Counter("a"); n != 0 {
			t.Errorf("%s: the counter is %d", name, n)
		}
		must(t, held.Release())
	}
}

// The rules of Guard for savepoints: a rollback to one from before the first statement on a table
// unlocks the row, and Guard, called again, reports whether another holder came. A later savepoint
// leaves the row locked.
func TestSavepointBeforeGuard(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	l, db := w.Locker(lock.Config{}), w.quick("10")
	held := w.Acquire(l, "a")
	run := func(tx *sql.Tx, query string) {
		t.Helper()
		_, err := tx.ExecContext(t.Context(), query)
		must(t, err)
	}
	free := func() bool {
		_, err := w.Env.DB.ExecContext(t.Context(), "SELECT token FROM cache_outbox_locks FOR UPDATE NOWAIT")
		return err == nil
	}
	guarded := func(first string) *sql.Tx {
		t.Helper()
		tx := w.begin(db, nil)
		run(tx, first)
		run(tx, "SAVEPOINT early")
		must(t, lock.Guard(t.Context(), tx, held))
		run(tx, "SAVEPOINT late")
		run(tx, "ROLLBACK TO late")
		if free() {
			t.Errorf("after %s: the row is free after a rollback to a savepoint from after Guard", first)
		}
		run(tx, "ROLLBACK TO early")
		return tx
	}
	reads := guarded("SELECT n FROM counters")
	if free() {
		t.Error("the row is free although a statement on a table came before the savepoint")
	}
	must(t, reads.Rollback())
	first := guarded("DO 1")
	if !free() {
		t.Error("the row is locked: what Guard's comment says of savepoints is wrong")
	}
	must(t, lock.Guard(t.Context(), first, held))
	run(first, "ROLLBACK TO early")
	must(t, w.redis.Del(t.Context(), key).Err())
	w.Acquire(w.Locker(lock.Config{}), "a")
	wantError(t, "Guard, called again", lock.Guard(t.Context(), first, held), lock.ErrLost)
}

// The first words of a statement decide whether a guarded transaction refuses it.
func TestCheckStatement(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"SELECT 1", "select 1;", " \n-- c\nUPDATE t SET a = 1", "/* c */ INSERT INTO t VALUES (';')", "(SELECT 1)", "WITH a AS (SELECT 1) SELECT * FROM a",
		"SAVEPOINT a", "ROLLBACK TO a", "ROLLBACK WORK TO SAVEPOINT a", "RELEASE SAVEPOINT a", "CREATE TEMPORARY TABLE t (a INT)", "DROP TEMPORARY TABLE t",
		"SET @a = 1", "SET SESSION sort_buffer_size = 100000", "CALL p()", "DELETE FROM t", "REPLACE INTO t VALUES (1)", "SELECT /*+ NO_ICP(t) */ 1",
		"LOAD DATA INFILE 'x' INTO TABLE t", "SELECT 'commit; begin'",
	} {
		if err := lock.CheckStatement(query, ""); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{
		"", ";", "COMMIT", "commit work", "ROLLBACK", "ROLLBACK AND CHAIN", "BEGIN", "START TRANSACTION", "/*! COMMIT */", "/*!40000 COMMIT */", "/*M!100000 COMMIT */",
		"CREATE TABLE t (a INT)", "DROP TABLE t", "ALTER TABLE t ADD b INT", "TRUNCATE t", "RENAME TABLE a TO b", "GRANT SELECT ON t TO a", "LOCK TABLES t READ", "UNLOCK TABLES",
		"SET autocommit = 1", "SET SESSION autocommit=1", "SET @@session.autocommit = ON", "SET @a = 1, `autocommit` = 1", "SET PASSWORD = 'a'", "SET STATEMENT a = 1 FOR COMMIT",
		"XA START 'a'", "PREPARE a FROM 'COMMIT'", "EXECUTE a", "EXECUTE IMMEDIATE 'COMMIT'", "SELECT 1; COMMIT", "ANALYZE TABLE t", "FLUSH TABLES", "LOAD INDEX INTO CACHE t",
		"IF 1 THEN COMMIT; END IF", "HANDLER t OPEN", "SET DEFAULT ROLE NONE TO a", "SET autocommít = 1", "SET \"autocommit\" = 1", "SET SQL_MODE = ''",
	} {
		if err := lock.CheckStatement(query, ""); err == nil || !strings.Contains(err.Error(), " is refused in a guarded transaction, which must not commit before its end") {
			t.Errorf("%q: %v", query, err)
		}
	}
}

// The sql_mode decides where text ends, so it decides what a statement is.
func TestCheckStatementOfModes(t *testing.T) {
	t.Parallel()
	const none, ansi = "STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"
	for query, refusedIn := range map[string][]string{
		`SET @a = '\', autocommit = 1, @b = ''`:     {none},
		`SET @a = '\\', autocommit = 1, @b = ''`:    {"", none, ansi},
		`SELECT "\"; COMMIT; -- "`:                  {none, ansi},
		`INSERT INTO t VALUES ('it\'s; all right')`: {none},
	} {
		for _, mode := range []string{"", none, ansi} {
			if err := lock.CheckStatement(query, mode); (err != nil) != slices.Contains(refusedIn, mode) {
				t.Errorf("%s in %q: %v", query, mode, err)
			}
		}
	}
}

// A section goes by the sql_mode of its session: the statement hides a COMMIT from a reader of any
// other mode.
func TestSectionWithoutBackslashEscapes(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	db := w.pool("sql_mode", "'NO_BACKSLASH_ESCAPES'")
	err := held.InTx(t.Context(), db, func(tx *sql.Tx) error {
		must(t, add(t.Context(), tx, "a"))
		_, _ = tx.Exec(`SET @a = '\', autocommit = 1, @b = ''`)
		return nil
	})
	wantError(t, "the section", err, lock.ErrBroken)
	if n := w.Counter("a"); n != 0 {
		t.Errorf("the counter is %d", n)
	}
}

// The end of the context rolls back the transaction while the function is still running, and no
// other user gets the connection.
func TestContextEndsInSection(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	db := w.quick("600")
	db.SetMaxOpenConns(1)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		err := held.InTx(ctx, db, func(tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(t.Context(), "UPDATE counters SET n = n + ? WHERE name = 'a'")
			if err != nil {
				return err
			}
			_, err = stmt.ExecContext(t.Context(), 1)
			cancel()
			for err == nil { // until the rollback is running
				_, err = tx.ExecContext(t.Context(), "DO 1")
			}
			return nil
		})
		wantError(t, "the section", err, context.Canceled)
		var autocommit bool
		must(t, db.QueryRow("SELECT @@autocommit").Scan(&autocommit))
		if !autocommit {
			t.Fatal("the session's settings are not as before")
		}
	}
	if n := w.Counter("a"); n != 0 {
		t.Errorf("the counter is %d", n)
	}
}
