package cache

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// overflowsShown is how many values in a row must be refused before Healthy reports it: a slow
	// load costs a few.
	overflowsShown = 16
	// overflowShown is for how long the latest one shows: where nothing is read nothing can be kept
	// either.
	overflowShown = 10 * time.Second
)

// An overflow counts the values that memory refuses since more was evicted during their load than
// its log remembers.
type overflow struct {
	total  atomic.Uint64
	inARow atomic.Uint64 // since a value was kept
	latest atomic.Int64  // when one was refused, in nanoseconds
}

func (o *overflow) refused(logger *slog.Logger) {
	o.total.Add(1)
	o.latest.Store(time.Now().UnixNano())
	if o.inARow.Add(1) == overflowsShown {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "memory keeps nothing", slog.Any("error", ErrMemoryOverflow))
	}
}

func (o *overflow) kept(logger *slog.Logger) {
	if o.inARow.Load() != 0 && o.inARow.Swap(0) >= overflowsShown {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "memory keeps values again")
	}
}

func (o *overflow) healthy() error {
	if o.inARow.Load() >= overflowsShown && time.Now().UnixNano()-o.latest.Load() < int64(overflowShown) {
		return ErrMemoryOverflow
	}
	return nil
}
