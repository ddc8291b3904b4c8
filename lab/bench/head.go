package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const (
	headRows  = 1_000_000
	headPolls = 60 // of a run, each with and without rows that are not purged
)

// A headBench is the mode under way.
type headBench struct {
	cfg         Config
	shop        *shop
	rows, polls int

	none, many  []float64 // microseconds of a poll at the median, a run each
	all         []float64 // of all polls while there are many
	start       []float64 // of a plain look at the table's start while there are many
	claim       []float64 // of a claim from the table's start while there are many
	late, drain []float64
}

// head measures a poll without work while another session's snapshot keeps a million deleted rows
// from being purged. The floor is the same poll of a table without such rows. Commits whose ids are
// below all of those then show how long they wait.
func head(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := (backlogShop{s}).numbers(ctx); err != nil {
		return nil, err
	}
	b := &headBench{cfg: cfg, shop: s, rows: headRows / cfg.Scale, polls: max(headPolls/cfg.Scale, 5)}
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		if err := b.run(ctx); err != nil {
			return nil, err
		}
		if _, err := s.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox"); err != nil {
			return nil, err
		}
	}
	return &Report{Ours: median(b.many), Floor: median(b.none), Unit: "us", Machine: s.machine(), Details: map[string]any{
		"deleted_rows": b.rows, "polls": len(b.all),
		"us_mean_of_all_polls":          mean(b.all),
		"us_of_a_look_from_the_start":   median(b.start),
		"us_of_a_claim_from_the_start":  median(b.claim),
		"us_from_late_commit_to_unlink": percentilesOf(b.late),
		"rows_per_s_of_the_drain":       median(b.drain),
	}}, nil
}

func (b *headBench) run(ctx context.Context) (err error) {
	w, err := b.shop.newWorker("head", couponMap, worker.Config{BatchRows: floorBatch})
	if err != nil {
		return err
	}
	polls, err := b.shop.pools("polls")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, polls.Close()) }()
	none, err := b.poll(ctx, polls)
	if err != nil {
		return err
	}
	b.none = append(b.none, median(none))

	snapshot, err := b.shop.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	for _, stmt := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := snapshot.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	defer func() {
		_, end := snapshot.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, end)
	}()
	var late [3]*sql.Tx
	for i := range late {
		if late[i], err = b.shop.db.BeginTx(ctx, nil); err != nil {
			return err
		}
		defer func() { _ = late[i].Rollback() }() // no effect after Commit
		if err := outbox.Enqueue(ctx, late[i], outbox.Invalidation{Entity: "coupon", ID: fmt.Sprintf("late-%d", i)}); err != nil {
			return err
		}
	}
	if err := (backlogShop{b.shop}).fillUp(ctx, b.rows); err != nil {
		return err
	}
	took, err := timed(func() error { _, err := w.DrainRows(ctx); return err })
	if err != nil {
		return err
	}
	b.drain = append(b.drain, float64(b.rows)/took)

	many, err := b.poll(ctx, polls)
	if err != nil {
		return err
	}
	b.many, b.all = append(b.many, median(many)), append(b.all, many...)
	if err := b.fromStart(ctx); err != nil {
		return err
	}
	return b.commitLate(ctx, w, late[:])
}

// poll returns how long polls take, at the pace of an idle worker. Each must find nothing.
func (b *headBench) poll(ctx context.Context, store *store.Store) (micros []float64, err error) {
	if _, err := store.Queue.Waiting(ctx); err != nil { // which may connect
		return nil, err
	}
	pace := worker.Config{}.WithDefaults().IdleInterval / time.Duration(b.cfg.Scale)
	for range b.polls {
		if err := sleep.For(ctx, pace); err != nil {
			return nil, err
		}
		var found bool
		took, err := timed(func() error { found, err = store.Queue.Waiting(ctx); return err })
		if err == nil && found {
			err = errors.New("a poll found a row where there is none")
		}
		if err != nil {
			return nil, err
		}
		micros = append(micros, 1e6*took)
	}
	return micros, nil
}

// fromStart measures the cost for a worker that does not know where the queue begins.
func (b *headBench) fromStart(ctx context.Context) error {
	conn, err := (floorShop{b.shop}).conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for query, list := range map[string]*[]float64{
		"SELECT EXISTS (SELECT 1 FROM cache_outbox)":                                 &b.start,
		"SELECT entity FROM cache_outbox ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED": &b.claim,
	} {
		took, err := timed(func() error {
			var any string
			err := conn.QueryRowContext(ctx, query).Scan(&any)
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return err
		})
		if err != nil {
			return err
		}
		*list = append(*list, 1e6*took)
	}
	return nil
}

// commitLate commits the transactions that began before all of the deleted rows, while a worker
// polls.
func (b *headBench) commitLate(ctx context.Context, w *worker.Worker, late []*sql.Tx) (err error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	for i, tx := range late {
		key := couponKey(fmt.Sprintf("late-%d", i))
		if err := b.shop.Set(ctx, key, "old", 0).Err(); err != nil {
			return err
		}
		// a quiet worker, at a random point of its interval
		if err := sleep.For(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		took, err := timed(func() error {
			if err := tx.Commit(); err != nil {
				return err
			}
			for {
				if n, err := b.shop.Exists(ctx, key).Result(); n == 0 || err != nil {
					return err
				}
				if err := sleep.For(ctx, time.Millisecond); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
		b.late = append(b.late, 1e6*took)
	}
	return nil
}

// mean of at least one figure.
func mean(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}
