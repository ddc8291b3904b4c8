package docs

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/limit/limitprom"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/lockprom"
)

// lockAndLimit starts an application that uses locks and limits on its own Redis, and serves its
// metrics.
func (d *drill) lockAndLimit() (address string) {
	d.t.Helper()
	d.state = testenv.OwnRedis(d.t)
	d.counts = redis.NewClient(&redis.Options{Addr: d.state.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	d.t.Cleanup(func() { _ = d.counts.Close() })
	var err error
	d.locks, err = lock.New(lock.Config{
		Backend: lock.Redis{Client: d.counts}, MySQL: d.first.MySQL, TTL: 30 * time.Second, Timeout: 10 * time.Second, MintWait: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	d.must(err)
	d.t.Cleanup(func() { _ = d.locks.Close() })
	d.codes, err = limit.New(limit.Config{
		Redis: d.counts, Prefix: "zahraah:limit:", Max: 5, Window: time.Hour, WhenAway: limit.Refuse, Timeout: 10 * time.Second,
	})
	d.must(err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(lockprom.New(d.locks, nil), limitprom.New(d.codes, prometheus.Labels{"limit": "codes"}))
	served := httptest.NewServer(exported(registry))
	d.t.Cleanup(served.Close)
	return served.URL
}

// lockOnce acquires a lock, runs section, and releases the lock. It fails while a cause is active.
func (d *drill) lockOnce(ctx context.Context, name string, section func()) {
	held, err := d.locks.Acquire(ctx, name)
	if err != nil {
		return
	}
	section()
	_ = held.Release()
}

// loseLocks makes Redis lose locks while they are held.
func (d *drill) loseLocks() (cure func()) {
	return d.steadily(100*time.Millisecond, func(ctx context.Context, _ int) {
		d.lockOnce(ctx, "lost", func() { _ = d.counts.Del(ctx, "lock:{lost}").Err() })
	})
}

// stayInSection acts as a guarded transaction that continues after its lock is lost.
func (d *drill) stayInSection() (cure func()) {
	d.t.Helper()
	var tx *sql.Tx
	testenv.Eventually(d.t, "a minted token", func() bool {
		d.lockOnce(d.t.Context(), "section", func() {})
		var err error
		tx, err = d.db.BeginTx(d.t.Context(), nil)
		d.must(err)
		var name string
		if tx.QueryRow("SELECT name FROM cache_outbox_locks WHERE name = 'section' FOR UPDATE").Scan(&name) == nil {
			return true
		}
		d.must(tx.Rollback())
		return false
	})
	stop := d.steadily(100*time.Millisecond, func(ctx context.Context, _ int) { d.lockOnce(ctx, "section", func() {}) })
	return func() {
		stop()
		d.must(tx.Rollback())
	}
}

func (d *drill) killState() (cure func()) {
	d.t.Helper()
	d.must(d.state.Kill())
	return func() { d.must(d.state.Restart(d.t.Context())) }
}
