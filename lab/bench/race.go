package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

const (
	// pollInterval is how often the stopwatch of Race checks whether a table is empty. It is also
	// the largest error of the measured time.
	pollInterval = 5 * time.Millisecond
	// pauseBefore each round of Race lets the servers finish the work of the previous one: pages to
	// write and rows to purge. It would slow the next peer. The servers do not report its end.
	pauseBefore = time.Second
)

// A Standing is the result of Race.
type Standing struct {
	Mode    string   `json:"mode"`
	Results []Result `json:"results"`   // ours, ours at batch 1, then the peers
	Best    string   `json:"best_peer"` // the fastest peer
	Ratio   float64  `json:"ratio"`     // ours/best
	Unit    string   `json:"unit"`
	Rows    int      `json:"rows"`
	Runs    int      `json:"runs"`
	Machine Machine  `json:"machine"`
}

// A Result is one participant's.
type Result struct {
	Name      string  `json:"name"`
	Rate      float64 `json:"rows_per_s"` // median
	Ratio     float64 `json:"ours_to_it"`
	Unlinks   int64   `json:"unlink_calls"`  // of the last run, as Redis counts them
	Publishes int64   `json:"publish_calls"` // likewise
}

// Race measures rows per second of unstale, with its defaults and with batches of one row, and of
// peers. They alternate on the same servers with the same IDs. The keys and leases exist before
// each round and must be gone after it. The stopwatch runs from the start of the consumer until its
// table is empty. Race uses the servers, Runs, Scale (of pauses) and Progress of cfg.
func Race(ctx context.Context, cfg Config, rows int, peers ...Peer) (st *Standing, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	all := append([]Peer{s.ours("unstale", 0), s.ours("unstale, batch 1", 1)}, peers...)
	results, rates := make([]Result, len(all)), make([][]float64, len(all))
	g := &Ground{DSN: s.dsn, shop: s}
	for run := range cfg.Runs {
		for turn := range all {
			i := (run + turn) % len(all)
			r := all[i]
			fmt.Fprintf(cfg.Progress, "run %d of %d: %s, %d rows\n", run+1, cfg.Runs, r.Name, rows)
			result, err := (raceShop{s}).turn(ctx, g, r, rows, pauseBefore/time.Duration(cfg.Scale))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			rates[i] = append(rates[i], result.Rate)
			results[i] = result
		}
	}
	for i := range results {
		results[i].Rate = median(rates[i])
		results[i].Ratio = results[0].Rate / results[i].Rate
	}
	st = &Standing{Mode: "peers", Results: results, Unit: "rows/s", Rows: rows, Runs: cfg.Runs, Machine: s.machine()}
	if len(peers) > 0 {
		best := slices.MaxFunc(results[2:], func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) })
		st.Best, st.Ratio = best.Name, best.Ratio
	}
	return st, nil
}

// A raceShop is the ground of a race of tools.
type raceShop struct{ shop *shop }

// turn fills both servers, lets a peer empty its table, and checks that it has done the work.
func (s raceShop) turn(ctx context.Context, g *Ground, r Peer, rows int, pause time.Duration) (result Result, err error) {
	key := func(i int) string { return couponKey(g.ID(i)) }
	lease := func(i int) string {
		name, _ := protocol.LeaseKey(key(i))
		return name
	}
	if err := errors.Join(s.shop.fill(ctx, rows, key), s.shop.fill(ctx, rows, lease)); err != nil {
		return result, err
	}
	if err := r.Fill(ctx, g, rows); err != nil {
		return result, fmt.Errorf("fill: %w", err)
	}
	// The optimizer must not use statistics of an empty table.
	if _, err := s.shop.db.ExecContext(ctx, "ANALYZE TABLE "+r.Table); err != nil {
		return result, err
	}
	if err := sleep.For(ctx, pause); err != nil {
		return result, err
	}
	unlinks, publishes := s.calls(ctx, "unlink"), s.calls(ctx, "publish")
	seconds, err := s.emptied(ctx, g, r)
	if err != nil {
		return result, err
	}
	result = Result{
		Name: r.Name, Rate: float64(rows) / seconds,
		Unlinks: s.calls(ctx, "unlink") - unlinks, Publishes: s.calls(ctx, "publish") - publishes,
	}
	left, err := s.shop.Keys(ctx, "*"+couponKey("*")).Result()
	if err == nil && (len(left) > 0 || result.Publishes == 0) {
		err = fmt.Errorf("its table is empty, but %d of %d keys and leases are left and it published %d times", len(left), 2*rows, result.Publishes)
	}
	return result, err
}

// emptied returns how many seconds a peer takes until its table is empty.
func (s raceShop) emptied(ctx context.Context, g *Ground, r Peer) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan error, 1)
	began := time.Now()
	go func() { over <- r.Drain(ctx, g) }()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for left := true; left; {
		select {
		case <-tick.C:
		case err := <-over:
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			return 0, fmt.Errorf("it ended before its table was empty: %w", err)
		}
		if err := s.shop.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+r.Table+")").Scan(&left); err != nil {
			stop()
			return 0, errors.Join(err, <-over)
		}
	}
	took := time.Since(began)
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		return took.Seconds(), err
	}
	return took.Seconds(), nil
}

// calls returns how often Redis has executed a command.
func (s raceShop) calls(ctx context.Context, command string) (n int64) {
	text := s.shop.InfoMap(ctx, "commandstats").Val()["Commandstats"]["cmdstat_"+command]
	_, _ = fmt.Sscanf(text, "calls=%d", &n) // no such line: never
	return n
}
