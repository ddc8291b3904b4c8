//go:build vitess

package vitess_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/outbox"
)

// Through VTGate, every command that needs MySQL says that it has to connect to a shard.
func TestCommandsThroughVTGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reason, cure, _ := strings.Cut(dberr.ErrVTGate.Error(), "; ")
	for _, args := range []string{
		"run --once --listen -", "migrate up", "migrate down", "migrate status", "migrate up --dry-run", "capture apply", "capture apply --definer root@%",
		"capture diff", "capture drop", "doctor", "status", "enqueue product 1", "invalidate --key shop:product:1", "dead list", "delayed list", "audit list",
		"pause --for 1m", "resume", "history --entity product --id 1", "source replace 0123456789abcdef0123456789abcdef", "source restored",
	} {
		for _, keyspace := range []string{"shop", "whole"} {
			text, err := w.call(w.vitess.DSN(keyspace), strings.Fields(args)...)
			if err == nil || !strings.Contains(text, reason) || !strings.Contains(text, cure) || strings.Contains(text, "GRANT") {
				t.Errorf("%s: %s: %v", keyspace, args, err)
			}
		}
	}
}

// The libraries of applications say the same where VTGate cannot do what they need.
func TestLibrariesThroughVTGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	is := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), dberr.ErrVTGate.Error()) || strings.Contains(err.Error(), "wait_timeout") {
			t.Errorf("%s: %v", what, err)
		}
	}
	is("WithoutCapture", outbox.WithoutCapture(t.Context(), w.shop, func(*sql.Conn) error { t.Error("it was called"); return nil }))
	locker := func(dsn string) *lock.Locker {
		t.Helper()
		config, err := mysql.ParseDSN(dsn)
		w.must(err)
		l, err := lock.New(lock.Config{Backend: lock.Redis{Client: w.cache}, MySQL: config, TTL: 5 * time.Second})
		w.must(err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	_, err := locker(w.vitess.DSN("shop")).Acquire(t.Context(), "1")
	is("mint", err)
	held, err := locker(w.shards[0].dsn).Acquire(t.Context(), "2")
	w.must(err)
	is("InTx", held.InTx(t.Context(), w.shop, func(*sql.Tx) error { t.Error("it was called"); return nil }))
	tx, err := w.shop.BeginTx(t.Context(), nil)
	w.must(err)
	is("Guard", lock.Guard(t.Context(), tx, held))
	w.must(tx.Rollback())
	w.must(held.Release())
	if _, err := w.shop.ExecContext(t.Context(), "CREATE TRIGGER t AFTER INSERT ON products FOR EACH ROW SET @a = 1"); err == nil {
		t.Error("VTGate has CREATE TRIGGER: docs/topologies.md and dberr.ErrVTGate deny it")
	} else {
		t.Log(err)
	}
}

// VTTablet answers a SELECT with the result of an equal one that began earlier, and so before a write
// that has been committed since. A reader would store the old value under a new lease. An option
// and a hint prevent it.
func TestConsolidator(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options []string
		hint    string
		want    int
	}{{nil, "", 0}, {nil, "/*vt+ CONSOLIDATOR=disabled */ ", 1}, {[]string{"--enable-consolidator-replicas"}, "", 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := newWorld(t, c.options...)
			id := w.idsOnShards()[0]
			query := fmt.Sprintf("SELECT %sprice + SLEEP(10) FROM products WHERE id = %d", c.hint, id)
			first := make(chan int)
			go func() { first <- w.count(w.shop, query) }()
			testenv.Eventually(t, "the first read runs", func() bool {
				return w.count(w.shards[0].db, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(10)%' AND id <> CONNECTION_ID()") == 1
			})
			w.exec(w.shop, "UPDATE products SET price = 1 WHERE id = ?", id)
			if got := w.count(w.shop, query); got != c.want {
				t.Errorf("a read after the write returns %d, want %d", got, c.want)
			}
			if got := <-first; got != 0 {
				t.Errorf("the first read returns %d", got)
			}
		})
	}
}
