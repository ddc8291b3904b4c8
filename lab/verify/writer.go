package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/outbox"
)

// mostTogether is how many keys one transaction writes at most.
const mostTogether = 10

// A writers writes versions in transactions. With n goroutines, each of them owns every nth key.
type writers struct {
	spec   *spec
	table  *table
	db     *sql.DB
	wakes  redis.UniversalClient
	bound  time.Duration // from the commit until it is due; 0: the settler sets the time
	number int           // of writers
	tell   func(pair)    // to a reader
	pace   time.Duration // mean time per key that a writer writes

	mu       sync.Mutex
	commits  int
	worst    []int64 // of commits that are no longer in the table, in nanoseconds
	failures int
	failure  error
}

// write writes until ctx ends.
func (w *writers) write(ctx context.Context) {
	var group sync.WaitGroup
	for i := range w.number {
		group.Go(func() { w.one(ctx, i, rand.New(rand.NewPCG(w.spec.Seed, uint64(1000+i)))) })
	}
	group.Wait()
}

// one writes in bursts: some keys several times in a row, at about the pace of their loads, to make
// loads race. Then it pauses to restore the mean pace.
func (w *writers) one(ctx context.Context, number int, dice *rand.Rand) {
	begun, done := time.Now(), 0
	own := (w.spec.Keys-number-1)/w.number + 1
	for ctx.Err() == nil {
		var burst []int
		for _, i := range dice.Perm(own)[:min(1+dice.IntN(mostTogether), own)] {
			burst = append(burst, number+w.number*i)
		}
		for range 5 + dice.IntN(30) {
			if ctx.Err() != nil {
				return
			}
			if err := w.commit(context.WithoutCancel(ctx), burst); err != nil {
				w.fail(err)
				sleep(ctx, 20*time.Millisecond)
				continue
			}
			done += len(burst)
			sleep(ctx, time.Duration(10_000+dice.IntN(8000))*time.Microsecond)
		}
		sleep(ctx, time.Until(begun.Add(time.Duration(done)*w.pace)))
	}
}

func (w *writers) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures, w.failure = w.failures+1, err
}

// commit writes the next versions of some keys, in one transaction. If the outcome of COMMIT is
// unknown, it reads the rows.
func (w *writers) commit(ctx context.Context, keys []int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	first := w.table.begin(keys[0])
	ids := []string{strconv.Itoa(w.spec.id(keys[0]))}
	for _, key := range keys[1:] {
		w.table.begin(key)
		ids = append(ids, strconv.Itoa(w.spec.id(key)))
	}
	token, err := outbox.InTxToken(ctx, w.db, func(tx *sql.Tx, writes *outbox.Writes) error {
		if _, err := tx.ExecContext(ctx, "UPDATE verify_rows SET version = version + 1 WHERE id IN ("+strings.Join(ids, ",")+")"); err != nil {
			return err
		}
		rows := make([]outbox.Invalidation, len(keys))
		for i, key := range keys {
			rows[i] = outbox.Invalidation{Entity: string(w.spec.kind(key)), ID: ids[i]}
		}
		return writes.Enqueue(ctx, tx, rows...)
	})
	if errors.Is(err, outbox.ErrCommit) {
		var is uint64
		if err = w.db.QueryRowContext(ctx, selectVersion, w.spec.id(keys[0])).Scan(&is); err == nil && is != first {
			err = fmt.Errorf("version %d was not committed", first)
		}
	}
	if err != nil {
		return err
	}
	at, due := now(), int64(0)
	if w.bound > 0 {
		due = after(at, w.bound)
	}
	var worst []int64
	for _, key := range keys {
		if stale := w.table.commit(key, at, due); stale >= 0 {
			worst = append(worst, stale)
		}
	}
	_ = w.wakes.Publish(ctx, wakeChannel, "1").Err() // only a hint
	w.tell(pair{Key: keys[0], Version: first, Token: token.String()})
	if last := len(keys) - 1; last > 2 {
		w.tell(pair{Key: keys[last], Version: w.table.rows[keys[last]].done.Load(), Token: token.String()})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits += len(keys)
	w.worst = append(w.worst, worst...)
	return nil
}

// settle sets the due time of commits to the end of their requested sweeps, until ctx ends. It
// repeats what fails.
func (w *writers) settle(ctx context.Context) {
	for ctx.Err() == nil {
		waiting := map[*commit]uint64{}
		w.table.unsettled(func(c *commit) { waiting[c] = c.version.Load() })
		if len(waiting) > 0 {
			if err := w.passed(ctx); err != nil {
				w.fail(err)
				waiting = nil
			}
		}
		for c, version := range waiting {
			if c.version.Load() == version {
				c.due.CompareAndSwap(0, now())
			}
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

// passed waits until every row that is in the outbox now is settled, and every sweep requested by
// then is done.
func (w *writers) passed(ctx context.Context) error {
	for _, name := range []string{"cache_outbox", "cache_outbox_sweeps"} {
		var last sql.NullInt64
		if err := w.db.QueryRowContext(ctx, "SELECT MAX(id) FROM "+name).Scan(&last); err != nil {
			return ended(ctx, err)
		}
		for waits := 1; waits > 0 && ctx.Err() == nil; sleep(ctx, 10*time.Millisecond) {
			if err := w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name+" WHERE id <= ?", last.Int64).Scan(&waits); err != nil {
				return ended(ctx, err)
			}
		}
	}
	return nil
}

// ended returns err, or nil if ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
