package cache

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// loaders run at most as many loaders in parallel as there are slots. A loader that another one
// waits for does not need a slot.
type loaders struct {
	slots  chan struct{}
	counts *counts
	hook   func(ctx context.Context, key string) (context.Context, func(error)) // Hooks.Load
	logger *slog.Logger
	panics complaints

	// events orders loads and callers. Each load takes the next number, and a caller remembers the
	// latest number at its arrival.
	events atomic.Uint64
}

// A loading is one run of the loader.
type loading struct {
	key  string // for the hook
	load func(context.Context) (any, error)
	fl   *flight // which the load is for, or nil

	started uint64 // see outcome; 0 before
	result  any
	err     error
	cost    time.Duration
}

// run waits for a slot and runs a loader, unless the context ends before. If the loader ends its
// goroutine with runtime.Goexit, only deferred functions run after it.
func (l *loaders) run(ctx context.Context, fill *Fill, r *loading) {
	fill.loaders, fill.outer = l, FillFrom(ctx)
	slot, ok := l.slot(ctx, fill.outer, r.fl)
	if !ok {
		return
	}
	fill.runs.Store(true)
	r.started = l.events.Add(1)
	start, returned := time.Now(), false
	var ended func(error)
	defer func() {
		r.cost = time.Since(start)
		if !returned {
			r.err = l.panicked(r.key, recover())
		}
		fill.runs.Store(false)
		if slot {
			<-l.slots
		}
		l.counts.loaded(r.err)
		end(ended, r.err)
	}()
	ctx, ended = begin(context.WithValue(ctx, fillKey{}, fill), l.hook, r.key)
	r.result, r.err = r.load(ctx)
	returned = true
}

// slot waits for a slot, and reports whether it has taken one. A load that a loader waits for,
// which has one itself, needs none, or loaders could wait for each other. ok is false if the
// context ended before.
func (l *loaders) slot(ctx context.Context, outer *Fill, fl *flight) (taken, ok bool) {
	if outer.runsIn(l) {
		return false, true
	}
	select {
	case l.slots <- struct{}{}:
		return true, true
	default: // rare, so few flights create a channel for it
	}
	var hurried <-chan struct{}
	if fl != nil {
		hurried = fl.hurried()
	}
	select {
	case l.slots <- struct{}{}:
		return true, true
	case <-hurried:
		return false, true
	case <-ctx.Done():
		return false, false
	}
}
