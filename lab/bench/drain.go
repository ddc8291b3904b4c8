package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/unstale/unstale/worker"
)

const drainRows = 200_000

var silence = slog.New(slog.NewTextHandler(io.Discard, nil))

// drain measures rows per second from a full outbox.
func drain(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rows := drainRows / cfg.Scale
	var ours, floor, alone, mixed []float64
	deadlocks, err := s.deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		took, err := s.drained(ctx, rows, coupon, (floorShop{s}).drain)
		if err != nil {
			return nil, err
		}
		floor = append(floor, float64(rows)/took)
		if took, err = s.drained(ctx, rows, coupon, s.workers(cfg.Workers, couponMap)); err != nil {
			return nil, err
		}
		ours = append(ours, float64(rows)/took)
		if cfg.Workers > 1 {
			if took, err = s.drained(ctx, rows, coupon, s.workers(1, couponMap)); err != nil {
				return nil, err
			}
			alone = append(alone, float64(rows)/took)
		}
		if cfg.Map != "" {
			if took, err = s.drained(ctx, rows/4, mixedRow, s.workers(cfg.Workers, cfg.Map)); err != nil {
				return nil, err
			}
			mixed = append(mixed, float64(rows/4)/took)
		}
	}
	r = &Report{Ours: median(ours), Floor: median(floor), Unit: "rows/s", Machine: s.machine(), Details: map[string]any{
		"rows": rows, "batch": floorBatch, "workers": cfg.Workers,
	}}
	if len(alone) > 0 {
		r.Details["rows_per_s_of_one_worker"] = median(alone)
		r.Details["ratio_to_one_worker"] = median(ours) / median(alone)
	}
	if len(mixed) > 0 {
		r.Details["rows_per_s_of_the_shipped_map"] = median(mixed)
	}
	after, err := s.deadlocks(ctx)
	if deadlocks >= 0 {
		r.Details["deadlocks"] = after - deadlocks
	}
	return r, err
}

// drained fills the outbox and measures until it is empty.
func (s *shop) drained(ctx context.Context, rows int, row func(int) (string, string, any), by func(context.Context) error) (float64, error) {
	if err := s.enqueue(ctx, rows, row); err != nil {
		return 0, err
	}
	took, err := timed(func() error { return by(ctx) })
	if err != nil {
		return 0, err
	}
	if err := s.isEmpty(ctx); err != nil {
		return 0, err
	}
	// the mode sweep is about these
	_, err = s.db.ExecContext(ctx, "DELETE FROM cache_outbox_sweeps")
	return took, err
}

// workers runs n workers in parallel until the rows are gone. They do not sweep.
func (s *shop) workers(n int, mapText string) func(context.Context) error {
	return func(ctx context.Context) error {
		var (
			mu    sync.Mutex
			errs  []error
			group sync.WaitGroup
		)
		for i := range n {
			w, err := s.newWorker(fmt.Sprintf("worker-%d", i), mapText, worker.Config{BatchRows: floorBatch})
			if err != nil {
				return err
			}
			group.Go(func() {
				_, err := w.DrainRows(ctx)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		group.Wait()
		return errors.Join(errs...)
	}
}

// mixedRow returns a day of a shop: mostly products and stock, few of what touches many pages.
func mixedRow(i int) (entity, id string, params any) {
	id = fmt.Sprint(i)
	switch {
	case i%1000 == 0:
		return "shipping", id, nil
	case i%100 == 0:
		return "category", fmt.Sprint(i % 50), nil
	case i%10 == 0:
		return "coupon", id, nil
	case i%3 == 0:
		return "inventory", id, fmt.Sprintf(`{"product_id":%d,"category_id":[%d,%d]}`, i/3, i%50, i%7)
	}
	return "product", id, fmt.Sprintf(`{"category_id":[%d,%d]}`, i%50, i%7)
}

// deadlocks returns the server's counter, or -1 where it may not be read.
func (s *shop) deadlocks(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT COUNT FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'").Scan(&n)
	if err != nil {
		return -1, nil
	}
	return n, nil
}
