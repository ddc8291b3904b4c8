package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/worker"
)

const (
	idleTime   = 60 * time.Second
	idleSettle = time.Second // until the work of the start ends
)

// idle measures the cost of a worker without work: queries per second at MySQL, and its share of a
// core. The floor is a poll per idle interval and nothing else. The mode measures one minute and
// ignores Runs.
func idle(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	config := worker.Config{}.WithDefaults()
	w, err := s.newWorker("idle", couponMap, config)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()

	lasts := idleTime / time.Duration(cfg.Scale)
	fmt.Fprintf(cfg.Progress, "a worker without work, for %s\n", lasts)
	if err := sleep.For(ctx, idleSettle); err != nil {
		return nil, err
	}
	queries, err := s.questions(ctx)
	if err != nil {
		return nil, err
	}
	busy, began := cpuTime(), time.Now()
	if err := sleep.For(ctx, lasts); err != nil {
		return nil, err
	}
	share, seconds := cpuTime()-busy, time.Since(began).Seconds()
	after, err := s.questions(ctx)
	if err != nil {
		return nil, err
	}
	return &Report{
		Ours:  float64(after-queries-1) / seconds, // the count itself is one
		Floor: 1 / config.IdleInterval.Seconds(), Unit: "queries/s", Runs: 1, Machine: s.machine(),
		Details: map[string]any{"seconds": seconds, "percent_of_a_core": 100 * share / seconds},
	}, nil
}

// questions returns the number of statements of all clients of the server.
func (s *shop) questions(ctx context.Context) (n int64, err error) {
	var name string
	err = s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// cpuTime returns what this process has used, in seconds.
func cpuTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
