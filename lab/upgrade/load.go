package upgrade

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/sleep"
)

const (
	writers = 4
	pace    = 10 * time.Millisecond // between two transactions of a writer
	glance  = 20 * time.Millisecond // between two looks for keys
	keyLife = time.Hour
)

// A load writes transactions, and records when the keys of each are gone. Of ten transactions, one
// rolls back, one invalidates a pattern, and one is scheduled. Safe for concurrent use.
type load struct {
	db    *sql.DB
	cache *redis.Client

	mu      sync.Mutex
	last    int
	phase   int                  // index into figures
	figures []figure             // by phase
	waiting map[string]committed // by key: committed, and not gone yet
	kept    []string             // keys of transactions that rolled back
}

// A figure counts the transactions that committed in a phase.
type figure struct {
	rows int
	// from the commit, or the scheduled time, until the key is seen to be gone
	longest, longestOther time.Duration // of an exact key; of a pattern or a scheduled row
}

type committed struct {
	phase int
	due   time.Time
	other bool // a pattern or a scheduled row
}

func newLoad(db *sql.DB, cache *redis.Client) *load {
	return &load{db: db, cache: cache, figures: []figure{{}}, waiting: map[string]committed{}}
}

// enter begins the next phase and returns the phase that ends.
func (l *load) enter() (ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase++
	l.figures = append(l.figures, figure{})
	return l.phase - 1
}

// rows returns how many rows committed in the present phase.
func (l *load) rows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures[l.phase].rows
}

// outcome returns the figure of a phase, and its keys that are not gone.
func (l *load) outcome(phase int) (f figure, waiting []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range l.waiting {
		if c.phase == phase {
			waiting = append(waiting, key)
		}
	}
	return l.figures[phase], waiting
}

// rolledBack returns the keys of transactions that rolled back.
func (l *load) rolledBack() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}

// next numbers a transaction.
func (l *load) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

// run writes until ctx ends, and returns when the last transaction has ended.
func (l *load) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range writers {
		g.Go(func() error {
			for ctx.Err() == nil {
				if err := l.write(context.WithoutCancel(ctx)); err != nil {
					return fmt.Errorf("write a transaction: %w", err)
				}
				_ = sleep.For(ctx, pace)
			}
			return nil
		})
	}
	return g.Wait()
}

// write writes one transaction.
func (l *load) write(ctx context.Context) error {
	id := l.next()
	key, delay := fmt.Sprint("upgrade:thing:", id), time.Duration(0)
	insert, args := "INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', ?)", []any{id}
	switch id % 10 {
	case 1:
		key = fmt.Sprintf("upgrade:shelf:%d:page", id)
		insert = "INSERT INTO cache_outbox (entity, entity_id) VALUES ('shelf', ?)"
	case 2:
		delay = 500 * time.Millisecond
		insert = "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', ?, UTC_TIMESTAMP(6) + INTERVAL 500000 MICROSECOND)"
	}
	if err := l.cache.Set(ctx, key, "old", keyLife).Err(); err != nil {
		return err
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := tx.ExecContext(ctx, insert, args...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if id%10 == 0 {
		l.mu.Lock()
		l.kept = append(l.kept, key)
		l.mu.Unlock()
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	due := time.Now()
	if delay > 0 {
		due = began.Add(delay)
	}
	l.note(key, due, id%10 == 1 || id%10 == 2)
	return nil
}

// note counts a row that committed, due at a time. other: a pattern or a scheduled row.
func (l *load) note(key string, due time.Time, other bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.figures[l.phase].rows++
	l.waiting[key] = committed{l.phase, due, other}
}

// watch looks for the keys that wait until ctx ends.
func (l *load) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.look(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("look for keys: %w", err)
		}
		_ = sleep.For(ctx, glance)
	}
	return nil
}

func (l *load) look(ctx context.Context) error {
	l.mu.Lock()
	keys := make([]string, 0, len(l.waiting))
	for key := range l.waiting {
		keys = append(keys, key)
	}
	l.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	pipe := l.cache.Pipeline()
	found := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		found[i] = pipe.Exists(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range keys {
		if found[i].Val() == 0 {
			c := l.waiting[key]
			longest := &l.figures[c.phase].longest
			if c.other {
				longest = &l.figures[c.phase].longestOther
			}
			*longest = max(*longest, now.Sub(c.due))
			delete(l.waiting, key)
		}
	}
	return nil
}
