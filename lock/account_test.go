package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/schema/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", name))
	must(t, err)
	return string(text)
}

// The privileges that the pages grant suffice on both servers, and each of them is needed.
func TestAccounts(t *testing.T) {
	t.Parallel()
	grant := regexp.MustCompile(`(?m)^GRANT .* ON shop\.cache_outbox_locks TO 'shop'@'%'`).FindString(page(t, "accounts.md"))
	rules := regexp.MustCompile(`(?m)^ACL SETUSER shop_locks (.*)$`).FindStringSubmatch(page(t, "locks.md"))
	if grant == "" || rules == nil {
		t.Fatal("the pages grant nothing")
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

	commands := strings.Fields(rules[1])
	account := func(user string, without string) *lock.Locker {
		rules := slices.DeleteFunc(slices.Clone(commands), func(rule string) bool { return rule == without })
		testenv.SetUser(t, w.redis, user, append(rules, ">secret")...)
		client := clientOf(t, w.addr, func(o *redis.Options) { o.Username, o.Password, o.MaxRetries = user, "secret", -1 })
		return w.Locker(lock.Config{Backend: lock.Redis{Client: client}, MySQL: dsn})
	}
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
	must(t, cycle(account("all", ""), "all"))
	if refused, err := w.redis.ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("Redis refused %+v, %v", refused, err)
	}
	for _, rule := range commands {
		// A waiter polls without +blpop, a script is loaded once, and a client needs no name.
		if !strings.HasPrefix(rule, "+") || slices.Contains([]string{"+blpop", "+eval", "+client|setinfo"}, rule) {
			continue
		}
		if err := cycle(account("less", rule), rule); err == nil {
			t.Errorf("%s is not needed", rule)
		}
	}
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
