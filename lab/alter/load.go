package alter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

const (
	writers = 8
	rows    = 40_000 // of each table at the start
	pace    = 5 * time.Millisecond
	keyLife = time.Hour
)

// A load writes each row at most once, so that no later write hides a loss. Safe for concurrent use.
type load struct {
	db     *sql.DB
	cache  *redis.Client
	errors []uint16 // that are repeated

	pause sync.RWMutex // writers hold it shared during a write
	count atomic.Int64
	again atomic.Int64 // writes that were repeated

	mu      sync.Mutex
	keys    []string // of committed writes that need a row
	longest time.Duration
}

// key returns the key of a row: shop:product:1 of products.
func key(table string, id int) string {
	return fmt.Sprintf("shop:%s:%d", table[:len(table)-1], id)
}

// run writes until ctx ends, and returns when the last transactions have ended.
func (l *load) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		g.Go(func() error {
			dice := rand.New(rand.NewPCG(uint64(w), 1))
			for id := oldID + writers + w; ctx.Err() == nil; id += writers {
				if id >= rows {
					return errors.New("a writer has no rows left")
				}
				for _, table := range []string{"products", "coupons"} {
					if err := l.write(context.WithoutCancel(ctx), table, id, dice.IntN(10)); err != nil {
						return fmt.Errorf("write to %s: %w", table, err)
					}
				}
				_ = sleep.For(ctx, pace)
			}
			return nil
		})
	}
	return g.Wait()
}

// write commits one write: six of ten are updates, two are inserts, two are deletes.
func (l *load) write(ctx context.Context, table string, id, kind int) error {
	l.pause.RLock()
	defer l.pause.RUnlock()
	statement, captured := "UPDATE "+table+" SET price = price + 1 WHERE id = ?", true
	switch {
	case kind >= 8:
		statement, captured = "DELETE FROM "+table+" WHERE id = ?", table == "products"
	case kind >= 6:
		id += rows
		statement, captured = "INSERT INTO "+table+" (id, price) VALUES (?, 1)", table == "products"
	}
	if captured {
		if err := l.cache.Set(ctx, key(table, id), "old", keyLife).Err(); err != nil {
			return err
		}
	}
	began := time.Now()
	changed, err := l.commit(ctx, statement, id)
	for l.expected(err) && time.Since(began) < patience {
		l.again.Add(1)
		_ = sleep.For(ctx, pace)
		changed, err = l.commit(ctx, statement, id)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count.Add(1)
	l.longest = max(l.longest, time.Since(began))
	switch {
	case captured && changed:
		l.keys = append(l.keys, key(table, id))
	case captured: // the row is missing, for example during a restore
		return l.cache.Del(ctx, key(table, id)).Err()
	}
	return nil
}

func (l *load) expected(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && (refused.Number == 1213 || slices.Contains(l.errors, refused.Number))
}

// commit reports whether the statement changed a row.
func (l *load) commit(ctx context.Context, statement string, id int) (changed bool, err error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	result, err := tx.ExecContext(ctx, statement, id)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, errors.Join(err, tx.Commit())
}

// fill stores keys of rows that no writer changes.
func (l *load) fill(ctx context.Context, table string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := 1; id <= oldID; id++ {
		l.keys = append(l.keys, key(table, id))
		if err := l.cache.Set(ctx, key(table, id), "old", keyLife).Err(); err != nil {
			return err
		}
	}
	return nil
}

// stale stops the writers, waits until the outbox is empty, and counts the keys of committed writes
// that exist.
func (l *load) stale(ctx context.Context) (n int, err error) {
	l.pause.Lock()
	defer l.pause.Unlock()
	err = until(ctx, "the outbox to be empty", func() (empty bool, err error) {
		err = l.db.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM cache_outbox) AND NOT EXISTS (SELECT 1 FROM cache_outbox_delayed)").Scan(&empty)
		return empty, err
	})
	for part := range slices.Chunk(l.keys, 1000) {
		found, err := l.cache.Exists(ctx, part...).Result()
		if n += int(found); err != nil {
			return n, err
		}
	}
	return n, err
}

// more waits for so many writes.
func (l *load) more(ctx context.Context, n int64) error {
	end := l.count.Load() + n
	return until(ctx, "writes", func() (bool, error) { return l.count.Load() >= end, nil })
}

// until looks until done.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	if err := rig.Wait(ctx, patience, 10*time.Millisecond, done); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
