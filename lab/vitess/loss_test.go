//go:build vitess

package vitess_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// If a row of the outbox is on another shard than its write, and the connection to that shard dies
// before COMMIT has reached it, the write is committed and its row is lost. Each of the three ways of
// docs/topologies.md prevents that.
func TestRowOnAnotherShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.idsOnShards()
	row := func(id int) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			return outbox.Enqueue(t.Context(), tx, outbox.Invalidation{Entity: "product", ID: fmt.Sprint(id), Params: map[string]any{"n": 1}})
		}
	}
	update := func(table string, id int) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET price = price + 1 WHERE id = %d", table, id))
			return err
		}
	}
	for _, c := range []struct {
		name, table, setting string
		steps                []func(*sql.Tx) error
		refused              bool   // a step
		writes, rows         [2]int // committed, by shard
	}{
		{"row on another shard", "products", "multi", []func(*sql.Tx) error{update("products", ids[0]), row(ids[1])}, false, [2]int{1, 0}, [2]int{0, 0}},
		{"same vindex", "products", "multi", []func(*sql.Tx) error{update("products", ids[0]), row(ids[0]), update("products", ids[1]), row(ids[1])}, false, [2]int{1, 0}, [2]int{1, 0}},
		{"triggers", "captured", "multi", []func(*sql.Tx) error{update("captured", ids[0]), update("captured", ids[1])}, false, [2]int{1, 0}, [2]int{1, 0}},
		{"transaction_mode=single", "products", "single", []func(*sql.Tx) error{update("products", ids[0]), row(ids[1])}, true, [2]int{0, 0}, [2]int{0, 0}},
	} {
		w.exec(w.shop, "UPDATE "+c.table+" SET price = 0")
		for _, s := range w.shards {
			w.exec(s.db, "DELETE FROM cache_outbox")
		}
		conn, err := w.shop.Conn(t.Context())
		w.must(err)
		w.exec(conn, "SET transaction_mode = '"+c.setting+"'")
		tx, err := conn.BeginTx(t.Context(), nil)
		w.must(err)
		for _, step := range c.steps {
			if err = step(tx); err != nil {
				break
			}
		}
		if (err != nil) != c.refused {
			t.Fatalf("%s: %v", c.name, err)
		} else if c.refused {
			t.Logf("%s: %v", c.name, err)
			w.must(tx.Rollback())
		} else {
			w.killTransaction(w.shards[1])
			if err := tx.Commit(); err == nil {
				t.Errorf("%s: COMMIT succeeded", c.name)
			} else {
				t.Logf("%s: %v", c.name, err)
			}
		}
		w.must(conn.Close())
		for i, s := range w.shards {
			testenv.Eventually(t, "no transaction is open", func() bool { return w.count(s.db, openTransactions) == 0 })
			if n := w.count(s.db, "SELECT COUNT(*) FROM "+c.table+" WHERE id = ? AND price > 0", ids[i]); n != c.writes[i] {
				t.Errorf("%s: %d writes on shard %s, want %d", c.name, n, s.name, c.writes[i])
			}
			if n := w.count(s.db, "SELECT COUNT(*) > 0 FROM cache_outbox"); n != c.rows[i] {
				t.Errorf("%s: rows on shard %s: %d, want %d", c.name, s.name, n, c.rows[i])
			}
		}
	}
}

const ofShard = ` FROM information_schema.innodb_trx JOIN information_schema.processlist AS p ON p.id = trx_mysql_thread_id
WHERE db = DATABASE() AND p.id <> CONNECTION_ID()`

const openTransactions = "SELECT COUNT(*)" + ofShard

// killTransaction kills the connection of the only transaction on a shard.
func (w *world) killTransaction(s *shard) {
	w.Helper()
	testenv.Eventually(w, "one transaction", func() bool { return w.count(s.db, openTransactions) == 1 }) // the table is a tenth of a second old
	id := w.count(s.db, "SELECT p.id"+ofShard)
	w.exec(s.db, fmt.Sprintf("KILL %d", id))
	testenv.Eventually(w, "it is gone", func() bool {
		return w.count(s.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id) == 0
	})
}

// idsOnShards inserts products, also as captured ones, and returns one on each shard.
func (w *world) idsOnShards() (ids [2]int) {
	w.Helper()
	for id := range 20 {
		for _, table := range []string{"products", "captured"} {
			w.exec(w.shop, "INSERT INTO "+table+" (id, price) VALUES (?, 0)", id)
		}
		for i, s := range w.shards {
			if w.count(s.db, "SELECT COUNT(*) FROM products WHERE id = ?", id) == 1 {
				ids[i] = id
			}
		}
	}
	return ids
}

// A write token names rows of one outbox. Through VTGate it is refused on a keyspace with shards, by
// name, and works on one without.
func TestTokensThroughVTGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const want = "cache_outbox_source has 2 rows, as in a keyspace with several shards, and each shard has an outbox of its own; connect to one shard"
	write := func(db *sql.DB) (outbox.Token, error) {
		return outbox.InTxToken(t.Context(), db, func(tx *sql.Tx, writes *outbox.Writes) error {
			return writes.Enqueue(t.Context(), tx, outbox.Invalidation{Entity: "product", ID: "1", Params: map[string]any{"n": 1}})
		})
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := write(w.shop)
	refused("write", err)
	_, err = outbox.Source(t.Context(), w.shop)
	refused("source", err)
	token, err := write(w.shards[0].db)
	w.must(err)
	_, err = outbox.Settled(t.Context(), w.shop, token)
	refused("settled", err)

	w.migrate("whole")
	s := w.shard("whole", "0")
	w.unstale(s.dsn, "migrate", "up")
	whole := w.open(w.vitess.DSN("whole"))
	token, err = write(whole)
	w.must(err)
	for _, want := range []bool{false, true} {
		if settled, err := outbox.Settled(t.Context(), whole, token); settled != want || err != nil {
			t.Errorf("unsharded: %t, %v", settled, err)
		}
		w.unstale(s.dsn, "run", "--once", "--listen", "-")
	}
}
