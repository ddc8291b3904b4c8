package lock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", name))
	must(t, err)
	return string(text)
}

// The grant of the page suffices on MySQL. The rules of `unstale acl` suffice on Redis, and each of
// them is needed.
func TestAccounts(t *testing.T) {
	t.Parallel()
	grant := regexp.MustCompile(`(?m)^GRANT .* ON shop\.cache_outbox_locks TO 'shop'@'%'`).FindString(page(t, "accounts.md"))
	if grant == "" {
		t.Fatal("the page grants nothing")
	}
	w := newWorld(t)
	w.Env = testenv.OwnDatabase(t)
	schematest.Up(t, w.Env.DB)
	w.SQL("CREATE USER 'shop'@'%' IDENTIFIED BY 'secret'")
	w.SQL(grant)
	dsn, err := mysql.ParseDSN(w.Env.DSN)
	must(t, err)
	dsn.User, dsn.Passwd = "shop", "secret"
	db, err := sql.Open("mysql", dsn.FormatDSN())
	must(t, err)
	defer db.Close()

	cycle := func(l *lock.Locker, name string) error {
		held, err := l.TryAcquire(t.Context(), name)
		if err != nil {
			return err
		}
		switch err := w.waitFor(l, name); {
		case err == nil:
			return errors.New("two have the lock")
		case !errors.Is(err, context.Canceled):
			return err
		}
		if err := held.InTx(t.Context(), db, func(*sql.Tx) error { return nil }); err != nil {
			return err
		}
		if err := lock.Extend(t.Context(), held); err != nil {
			return err
		}
		return held.Release()
	}
	w.redis = testenv.Client(t, "redis://"+w.addr, func(o *redis.Options) { o.DB = 3 })
	testenv.EachRule(t, w.redis, "locks", doctor.ACLRules(doctor.Locker, doctor.ACLOptions{Prefix: "lock:"}), func(string) error {
		client := testenv.Client(t, "redis://"+w.addr, func(o *redis.Options) {
			o.Username, o.Password, o.DB, o.MaxRetries, o.DisableIdentity = "locks", "secret", 3, -1, true
		})
		return cycle(w.Locker(lock.Config{Backend: lock.Redis{Client: client}, MySQL: dsn}), rand.Text())
	})
}

// waitFor waits for a held lock, and gives up when its value shows a waiter.
func (w *world) waitFor(l *lock.Locker, name string) error {
	w.Helper()
	ctx, giveUp := context.WithCancel(w.Context())
	defer giveUp()
	gone := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, name)
		gone <- err
	}()
	testenv.Eventually(w.TB, "a waiter", func() bool {
		return len(gone) > 0 || strings.Contains(w.redis.Get(w.Context(), "lock:{"+name+"}").Val(), "w ")
	})
	giveUp()
	return <-gone
}
