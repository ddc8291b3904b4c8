package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// hotRow returns the id of the only row that a write has made.
func hotRow(t testing.TB, db *sql.DB) uint64 {
	t.Helper()
	all := allIDs(t, db)
	if len(all) != 1 {
		t.Fatalf("the rows are %v, wanted one", all)
	}
	return all[0]
}

// The ways that a row leaves cache_outbox: each statement takes its ID.
const (
	toDelayed = "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id) VALUES ('product', '1', UTC_TIMESTAMP(6), ?)"
	toRepeat  = "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, repeated, first_id) VALUES ('product', '1', UTC_TIMESTAMP(6), 1, ?)"
	toDead    = "INSERT INTO cache_outbox_dead (entity, entity_id, created_at, reason, error, map_version, first_id) " +
		"VALUES ('product', '1', UTC_TIMESTAMP(6), 'bad_parameter', '', '', ?)"
	toSweep = "INSERT INTO cache_outbox_sweeps (kind, name, first_low, first_high) VALUES ('pattern', 'p:*', ?, 1000000)"
)

// A row is not settled wherever it waits, and is settled when its work is done.
func TestSettled(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(1)...)
	id := hotRow(t, env.DB)
	checkSettled(t, env.DB, token, false)
	exec(t, env.DB, "DELETE FROM cache_outbox")
	checkSettled(t, env.DB, token, true)
	for _, c := range []struct {
		name, put, take string
		id              uint64
		settled         bool
	}{
		{"delayed", toDelayed, "DELETE FROM cache_outbox_delayed", id, false},
		{"another row delayed", toDelayed, "DELETE FROM cache_outbox_delayed", id + 1, true},
		{"scheduled", toDelayed, "DELETE FROM cache_outbox_delayed", 0, true},
		{"a repeat", toRepeat, "DELETE FROM cache_outbox_delayed", id, true},
		{"a request for a sweep", toSweep, "UPDATE cache_outbox_sweeps SET swept_at = UTC_TIMESTAMP(6)", id, false},
		{"a request of another row", toSweep, "DELETE FROM cache_outbox_sweeps", id + 1, true},
		{"a request of nobody's", strings.Replace(toSweep, "1000000", "0", 1), "DELETE FROM cache_outbox_sweeps", 0, true},
		{"another dead letter", toDead, "DELETE FROM cache_outbox_dead", id + 1, true},
	} {
		exec(t, env.DB, c.put, c.id)
		if got, err := outbox.Settled(t.Context(), env.DB, token); err != nil || got != c.settled {
			t.Errorf("%s: settled %t, %v; wanted %t", c.name, got, err, c.settled)
		}
		exec(t, env.DB, c.take)
		checkSettled(t, env.DB, token, true)
	}
	checkSettled(t, env.DB, outbox.Token{}, true)
}

// A dead letter is an error with its reason, until it is retried; a dead repeat is not an error.
func TestSettledNamesDeadLetters(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(1)...)
	id := hotRow(t, env.DB)
	exec(t, env.DB, "DELETE FROM cache_outbox")
	exec(t, env.DB, toDead, id)
	settled, err := outbox.Settled(t.Context(), env.DB, token)
	if settled || !errors.Is(err, outbox.ErrDead) || !strings.HasSuffix(err.Error(), ": bad_parameter") {
		t.Errorf("settled %t, %v", settled, err)
	}
	if err := outbox.Wait(t.Context(), env.DB, token); !errors.Is(err, outbox.ErrDead) {
		t.Errorf("wait: %v", err)
	}
	exec(t, env.DB, "UPDATE cache_outbox_dead SET repeated = 1")
	checkSettled(t, env.DB, token, true)
}

// A row that moves between tables during the query is never missed.
func TestSettledSeesARowThatMoves(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(1)...)
	id := hotRow(t, env.DB)
	moved := make(chan error, 1)
	go func() {
		for range 100 {
			for _, move := range [][2]string{
				{toDelayed, "DELETE FROM cache_outbox"}, {toDead, "DELETE FROM cache_outbox_delayed"},
				{toDelayed, "DELETE FROM cache_outbox_dead"}, {toSweep, "DELETE FROM cache_outbox_delayed"},
				{"INSERT INTO cache_outbox (id, entity, entity_id) VALUES (?, 'product', '1')", "DELETE FROM cache_outbox_sweeps"},
			} {
				err := outbox.InTx(context.Background(), env.DB, func(tx *sql.Tx) error {
					_, err := tx.Exec(move[0], id)
					if err == nil {
						_, err = tx.Exec(move[1])
					}
					return err
				})
				if err != nil {
					moved <- err
					return
				}
			}
		}
		moved <- nil
	}()
	for asked := 0; ; asked++ {
		settled, err := outbox.Settled(t.Context(), env.DB, token)
		if settled || err != nil && !errors.Is(err, outbox.ErrDead) {
			t.Errorf("question %d: settled %t, %v", asked, settled, err)
		}
		select {
		case err := <-moved:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// The state of the session or of the server decides whether an answer counts.
func TestSettledRefuses(t *testing.T) {
	t.Parallel()
	env := testenv.OwnDatabase(t)
	schematest.Up(t, env.DB)
	token := write(t, env.DB, products(1)...)
	for setting, want := range map[string]string{
		"autocommit=0":                                    "autocommit off",
		"tx_isolation=%27READ-UNCOMMITTED%27":             "not committed",
		"tx_isolation=%27READ-COMMITTED%27":               "",
		"sql_mode=%27%27&tx_isolation=%27SERIALIZABLE%27": "",
	} {
		if env.Flavor.String() == "MySQL" {
			setting = strings.Replace(setting, "tx_isolation", "transaction_isolation", 1)
		}
		db, err := sql.Open("mysql", env.DSN+"&"+setting)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		settled, err := outbox.Settled(t.Context(), db, token)
		if settled || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: settled %t, %v; wanted %q", setting, settled, err, want)
		}
	}
	exec(t, env.DB, "SET GLOBAL read_only = 1")
	for name, ask := range map[string]func() error{
		"settled": func() error { _, err := outbox.Settled(t.Context(), env.DB, token); return err },
		"wait":    func() error { return outbox.Wait(t.Context(), env.DB, token) },
		"check":   func() error { _, _, err := outbox.NewCheck(env.DB, token).Settled(t.Context()); return err },
	} {
		if err := ask(); !errors.Is(err, outbox.ErrReadOnly) {
			t.Errorf("%s: %v, wanted that the server is read-only", name, err)
		}
	}
}

// A token of another database's outbox is refused.
func TestSettledRefusesAnotherOutbox(t *testing.T) {
	t.Parallel()
	here, there := migrated(t), migrated(t)
	a, b := write(t, here.DB, products(1)...), write(t, there.DB, products(1)...)
	if settled, err := outbox.Settled(t.Context(), here.DB, b); settled || !errors.Is(err, outbox.ErrOtherOutbox) {
		t.Errorf("settled %t, %v", settled, err)
	}
	if joined, err := a.Join(b); !joined.IsZero() || !errors.Is(err, outbox.ErrOtherOutbox) {
		t.Errorf("joined %s, %v", joined, err)
	}
}

// A token has the rows of the attempt that was committed, and none without a commit.
func TestInTxToken(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	tries := 0
	token, err := outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		if err := writes.Enqueue(t.Context(), tx, products(2)...); err != nil {
			return err
		}
		if tries++; tries < 3 {
			return fmt.Errorf("change: %w", &mysql.MySQLError{Number: 1213})
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Fatalf("%d tries, %v", tries, err)
	}
	if named := ids(t, env.DB, token, []uint64{1, 2, 3, 4, 5, 6, 7}); fmt.Sprint(named) != "[5 6]" {
		t.Errorf("the token %s names %v, wanted [5 6]", token, named)
	}
	token, err = outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		return errors.Join(writes.Enqueue(t.Context(), tx, products(1)...), errors.New("broken"))
	})
	if !token.IsZero() || err == nil {
		t.Errorf("rolled back: token %s, %v", token, err)
	}
	later := outbox.Invalidation{Entity: "product", ID: "1", NotBefore: time.Now().Add(time.Hour)}
	if token := write(t, env.DB, later); !token.IsZero() || token.String() != "" {
		t.Errorf("the token of a scheduled row is %s", token)
	}
}

// After a COMMIT that may have succeeded there is a token in addition to the error.
func TestInTxTokenOfADoubtfulCommit(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token, err := outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		if err := writes.Enqueue(t.Context(), tx, products(1)...); err != nil {
			return err
		}
		var id uint64
		if err := tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		_, err := env.DB.Exec(fmt.Sprintf("KILL %d", id))
		return err
	})
	if token.IsZero() || !errors.Is(err, outbox.ErrCommit) {
		t.Errorf("token %s, %v", token, err)
	}
}

// Enqueueing for a token gives a transaction no snapshot: it sees others' commits until its own
// first read.
func TestWritesTakesNoSnapshot(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	exec(t, env.DB, "CREATE TABLE stock (n INT NOT NULL)")
	_, err := outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		if err := writes.Enqueue(t.Context(), tx, products(1)...); err != nil {
			return err
		}
		exec(t, env.DB, "INSERT INTO stock VALUES (7)")
		var n int
		return tx.QueryRow("SELECT n FROM stock").Scan(&n)
	})
	if err != nil {
		t.Error(err)
	}
}

// Each table is read by its index, with any other rows in it.
func TestSettledReadsByIndex(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	env.DB.SetMaxOpenConns(1)
	enqueue(t, env.DB, products(2000)...)
	for _, copied := range []string{
		"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at, first_id) SELECT entity, entity_id, created_at, id + 3000 FROM cache_outbox",
		"INSERT INTO cache_outbox_dead (entity, entity_id, created_at, reason, error, map_version, first_id) SELECT entity, entity_id, created_at, '', '', '', id + 3000 FROM cache_outbox",
		"INSERT INTO cache_outbox_sweeps (kind, name, first_low, first_high) SELECT 'pattern', 'p:*', 1, 1 + id MOD 900 FROM cache_outbox",
		"DELETE FROM cache_outbox WHERE id = 1000",
	} {
		exec(t, env.DB, copied)
	}
	source := write(t, env.DB, products(1)...).String()[2:34]
	token, err := outbox.ParseToken("1." + source + ".zzzzzz.rs") // row 1000
	if err != nil {
		t.Fatal(err)
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := env.DB.Exec("ANALYZE TABLE cache_outbox, cache_outbox_delayed, cache_outbox_dead, cache_outbox_sweeps"); err != nil {
				t.Fatal(err)
			}
		}
		checkSettled(t, env.DB, token, true) // the dictionary is read once
		before := handlerReads(t, env.DB)
		checkSettled(t, env.DB, token, true)
		if n := handlerReads(t, env.DB) - before; n > 60 {
			t.Errorf("analyzed %t: %d rows were read", analyzed, n)
		}
	}
}

// handlerReads returns how many rows the session has read, by any access path. The query reads some
// itself.
func handlerReads(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var one int
		if err := rows.Scan(&name, &one); err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}

// Wait returns when the last row is settled, or earlier when its context ends.
func TestWait(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	token := write(t, env.DB, products(2)...)
	waited := make(chan error, 1)
	go func() { waited <- outbox.Wait(context.Background(), env.DB, token) }()
	exec(t, env.DB, "DELETE FROM cache_outbox WHERE entity_id = '1'")
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { cancelled <- outbox.Wait(ctx, env.DB, token) }()
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	select {
	case err := <-waited:
		t.Fatalf("it has returned %v while a row waits", err)
	default:
	}
	exec(t, env.DB, "DELETE FROM cache_outbox")
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// An account needs exactly the privileges that docs/accounts.md lists.
func TestTokenAccount(t *testing.T) {
	t.Parallel()
	env := testenv.OwnDatabase(t)
	schematest.Up(t, env.DB)
	exec(t, env.DB, "CREATE USER 'shop'@'%' IDENTIFIED BY 'secret'")
	for _, right := range []string{
		"INSERT (entity, entity_id, params, trace) ON cache_outbox", "SELECT ON cache_outbox_source", // for tokens
		"SELECT ON cache_outbox", "SELECT ON cache_outbox_delayed", "SELECT ON cache_outbox_dead", "SELECT ON cache_outbox_sweeps", // who asks
	} {
		exec(t, env.DB, "GRANT "+right+" TO 'shop'@'%'")
	}
	config, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.User, config.Passwd = "shop", "secret"
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	checkSettled(t, db, write(t, db, products(1)...), false)
}

// A keyspace with several shards has an outbox in each. No check of a token returns a state, whether
// its outbox is the first one, the last one or none of them.
func TestSeveralOutboxes(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	tokens := []outbox.Token{write(t, env.DB, products(1)...)}
	exec(t, env.DB, "DELETE FROM cache_outbox") // settled
	exec(t, env.DB, "RENAME TABLE cache_outbox_source TO shard")
	for _, id := range []string{strings.Repeat("0", 32), strings.Repeat("f", 32)} {
		exec(t, env.DB, "CREATE OR REPLACE VIEW cache_outbox_source AS SELECT 1 AS one, '"+id+"' AS id")
		tokens = append(tokens, write(t, env.DB, products(1)...))
	}
	exec(t, env.DB, "CREATE OR REPLACE VIEW cache_outbox_source AS SELECT one, id FROM shard UNION SELECT 1, REPEAT('0', 32) UNION SELECT 1, REPEAT('f', 32)")
	exec(t, env.DB, "DELETE FROM cache_outbox")
	const want = "cache_outbox_source has 3 rows, as in a keyspace with several shards"
	for _, token := range tokens {
		check := outbox.NewCheck(env.DB, token)
		for range 2 {
			settled, left, err := check.Settled(t.Context())
			if settled || left != outbox.TokenLifetime || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("check: settled %t, left %s, %v", settled, left, err)
			}
		}
		if settled, err := outbox.Settled(t.Context(), env.DB, token); settled || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("settled %t, %v", settled, err)
		}
		if err := outbox.Wait(t.Context(), env.DB, token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wait: %v", err)
		}
	}
	if id, err := outbox.Source(t.Context(), env.DB); id != "" || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("source %q, %v", id, err)
	}
	token, err := outbox.InTxToken(t.Context(), env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		err := writes.Enqueue(t.Context(), tx, products(1)...)
		if again := writes.Enqueue(t.Context(), tx, products(1)...); again == nil {
			t.Error("the second call enqueued a row")
		}
		return err
	})
	if !token.IsZero() || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("token %v, %v", token, err)
	}
	exec(t, env.DB, "CREATE OR REPLACE VIEW cache_outbox_source AS SELECT one, id FROM shard")
	checkSettled(t, env.DB, tokens[0], true)
}
