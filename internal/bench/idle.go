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
	idleSettle = time.Second // until what happens at the start is over
)

// idle measures what a worker without work costs: queries per second at MySQL, and its share of a core. The floor is a
// poll every idle interval and nothing else. It is measured once, for a minute, whatever Runs says.
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

// questions counts the statements that clients have sent, on a server that nobody else uses.
func (s *shop) questions(ctx context.Context) (n int64, err error) {
	var name string
	err = s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// cpuTime is what this process has used, in seconds.
func cpuTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
