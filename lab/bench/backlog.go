package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/worker"
)

const backlogTake = 100_000 // rows, from each backlog

var backlogs = [...]int{100_000, 1_000_000, 5_000_000}

// backlog measures the rate of a worker over the same number of rows from backlogs of several
// sizes, and the peak memory of this process. The ratio compares the largest backlog with the
// floor.
func backlog(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := (backlogShop{s}).numbers(ctx); err != nil {
		return nil, err
	}
	take := backlogTake / cfg.Scale
	details := map[string]any{"rows": take}
	var ours, floor float64 // of the current backlog, finally of the largest
	var rates []float64
	most := 0.0
	for _, size := range backlogs {
		var mine, theirs []float64
		for run := range cfg.Runs {
			fmt.Fprintf(cfg.Progress, "%d rows waiting, run %d of %d\n", size/cfg.Scale, run+1, cfg.Runs)
			if err := (backlogShop{s}).fillUp(ctx, size/cfg.Scale); err != nil {
				return nil, err
			}
			took, err := timed(func() error { return (floorShop{s}).take(ctx, take) })
			if err != nil {
				return nil, err
			}
			theirs = append(theirs, float64(take)/took)
			if err := (backlogShop{s}).fillUp(ctx, size/cfg.Scale); err != nil {
				return nil, err
			}
			memory := watchMemory()
			took, err = timed(func() error { return s.take(ctx, take) })
			if most = max(most, memory.end()); err != nil {
				return nil, err
			}
			mine = append(mine, float64(take)/took)
		}
		ours, floor = median(mine), median(theirs)
		rates = append(rates, ours)
		details[fmt.Sprintf("rows_per_s_from_%d", size)] = ours
		details[fmt.Sprintf("floor_from_%d", size)] = floor
	}
	details["percent_between_best_and_worst"] = 100 * (slices.Max(rates)/slices.Min(rates) - 1)
	details["resident_mb_at_most"] = most
	return &Report{Ours: ours, Floor: floor, Unit: "rows/s", Machine: s.machine(), Details: details}, nil
}

// take returns a worker that ends when it has processed that many rows, to the next whole batch.
func (s *shop) take(ctx context.Context, rows int) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	limit := &limited{left: rows, enough: enough}
	w, err := s.newWorker("worker", couponMap, worker.Config{
		BatchRows: floorBatch, InstrumentRedis: func(c redis.UniversalClient) { c.AddHook(limit) },
	})
	if err != nil {
		return err
	}
	taken, err := w.DrainRows(ctx)
	if errors.Is(err, context.Canceled) && taken.Unlinked >= rows {
		err = nil
	}
	return err
}

// A limited client reports when it has received enough keys to unlink. It is a hook.
type limited struct {
	left   int
	enough func()
}

// ProcessPipelineHook implements redis.Hook. A name to unlink is a coupon's or its lease's.
func (l *limited) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		for _, c := range commands {
			if c.Name() == "unlink" {
				l.left -= (len(c.Args()) - 1) / 2
			}
		}
		if l.left <= 0 {
			l.enough()
		}
		return next(ctx, commands)
	}
}

// DialHook implements redis.Hook.
func (l *limited) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (l *limited) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// floorTake is the floor, for so many rows.
func (f floorShop) take(ctx context.Context, rows int) error {
	conn, err := f.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for seq := uint64(1); rows > 0; seq++ {
		n, err := f.carry(ctx, conn, seq)
		if err == nil && n == 0 {
			err = errors.New("too few rows")
		}
		if err != nil {
			return err
		}
		rows -= n
	}
	return nil
}

// A backlogShop has a backlog of many rows.
type backlogShop struct{ shop *shop }

// numbers makes a table with the numbers below 1,000. Inserts of millions of rows inside the server
// select from it.
func (b backlogShop) numbers(ctx context.Context) error {
	_, err := b.shop.db.ExecContext(ctx, `CREATE TABLE numbers (n INT PRIMARY KEY) AS
WITH RECURSIVE list AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM list WHERE n < 999) SELECT n FROM list`)
	return err
}

// fillUp adds coupons until so many rows wait.
func (b backlogShop) fillUp(ctx context.Context, rows int) error {
	var waiting int
	if err := b.shop.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox").Scan(&waiting); err != nil {
		return err
	}
	const part = 100_000
	for ; waiting < rows; waiting += part {
		_, err := b.shop.db.ExecContext(ctx, `INSERT INTO cache_outbox (entity, entity_id)
SELECT 'coupon', CONCAT('code-', LPAD(? + a.n * 1000 + b.n, 7, '0')) FROM numbers AS a JOIN numbers AS b ORDER BY a.n, b.n LIMIT ?`,
			waiting, min(part, rows-waiting))
		if err != nil {
			return err
		}
	}
	_, err := b.shop.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_journal")
	return err
}
