package capture_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// writers change products until they are stopped. Each writer changes its own products, and records
// every committed name.
type writers struct {
	sync.WaitGroup
	stop   atomic.Bool
	writes atomic.Int64
	mu     sync.Mutex
	names  []string
	failed []error
}

func (s *shop) writers(n int) *writers {
	s.t.Helper()
	dsn := s.DSN
	// a prepared statement can fail then: MDEV-26048
	if s.Flavor == servers.KindMariaDB {
		dsn += "&interpolateParams=true"
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	w := &writers{}
	for id := 1; id <= n; id++ {
		s.exec(fmt.Sprintf("INSERT INTO products (id, name) VALUES (%d, 'first')", id))
		w.Go(func() {
			for i := 0; !w.stop.Load(); i++ {
				name := fmt.Sprintf("name-%d-%d", id, i)
				err := write(db, id, name)
				for id%2 == 0 && mysqlerr.Number(err) == mysqlerr.Deadlock { // see write
					err = write(db, id, name)
				}
				w.mu.Lock()
				if err != nil {
					w.failed = append(w.failed, err)
				} else {
					w.names = append(w.names, name)
				}
				w.mu.Unlock()
				w.writes.Add(1)
			}
		})
	}
	return w
}

// write runs a transaction as an application does. Half of them read first: a transaction that has
// read a table and then writes it while DDL waits is refused immediately, as in a deadlock, and
// must be retried.
func write(db *sql.DB, id int, name string) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if id%2 == 0 {
		var old string
		if err := tx.QueryRow("SELECT name FROM products WHERE id = ?", id).Scan(&old); err != nil {
			return err
		}
	}
	if _, err := tx.Exec("UPDATE products SET name = ? WHERE id = ?", name, id); err != nil {
		return err
	}
	return tx.Commit()
}

// more waits for n more writes.
func (w *writers) more(t *testing.T, n int64) {
	t.Helper()
	want := w.writes.Load() + n
	testenv.Eventually(t, "the shop writes", func() bool { return w.writes.Load() >= want })
}

func (w *writers) end(t *testing.T) {
	t.Helper()
	w.stop.Store(true)
	w.Wait()
	for _, err := range w.failed {
		t.Errorf("a write failed: %v", err)
	}
}

// While an application writes, triggers are created, changed and dropped. No write fails, and every
// write from the first apply to the drop has its row.
func TestUnderLoad(t *testing.T) {
	t.Parallel()
	section := func(watch string) string {
		return "  products: {entity: product, id: id, watch: [" + watch + "], params: {value: name}}\n"
	}
	s := newShop(t, products)
	w := s.writers(4)
	w.more(t, 50)
	s.apply(section("name"))
	w.mu.Lock()
	w.names = nil // a running transaction is older than the triggers
	w.mu.Unlock()
	w.more(t, 50)
	for range 5 {
		s.apply(section("name, price"))
		w.more(t, 20)
		s.apply(section("name"))
		w.more(t, 20)
	}
	w.stop.Store(true)
	w.Wait()
	rows := strings.Join(s.rows(), "\n")
	for _, name := range w.names {
		if !strings.Contains(rows, `"`+name+`"]`) {
			t.Errorf("%s has no row", name)
		}
	}
	if len(w.names) < 200 {
		t.Errorf("%d writes only", len(w.names))
	}
	w.end(t)

	w = &writers{}
	s.exec("DELETE FROM products")
	w = s.writers(4)
	w.more(t, 50)
	if err := s.capturer(section("name")).Drop(t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
		t.Fatal(err)
	}
	w.more(t, 50)
	w.end(t)
}

// A long transaction delays only apply.
func TestBehindALongTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "INSERT INTO products (id, name) VALUES (1, 'tea')")
	tx, err := s.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE products SET stock = 1 WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	waits, ended := make(chan string, 10), make(chan error, 1)
	c := s.capturer(productCapture)
	c.Notify = func(notice string) { waits <- notice }
	go func() { ended <- c.Apply(context.WithoutCancel(t.Context()), func(capture.Change) {}) }()
	if notice := <-waits; !strings.Contains(notice, "the trigger on products waits for a lock on its table") {
		t.Error(notice)
	}
	s.exec("INSERT INTO products (id, name) VALUES (2, 'cup')") // has its turn between two tries
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s.want("UPDATE products SET name = 'pot' WHERE id = 2", `product 2 {"category_id": [null, null]}`)
}
