package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
)

// mostWarmErrors is how many of its keys' errors Warm returns.
const mostWarmErrors = 10

// WarmOptions configure Warm.
type WarmOptions struct {
	// Parallel is how many keys are fetched concurrently, below Config.Loads, which bounds all
	// loaders. Zero: 8.
	Parallel int
}

// Warmed counts the keys of Warm by outcome. Keys that it did not reach are not counted.
type Warmed struct {
	Loaded  int // now
	Already int // cached before, or by another caller meanwhile
	Missing int // known not to exist
	Failed  int
}

// Warm fetches keys in parallel, and loads and stores those that are not cached. It fetches each
// like Fetch, under its lease. Use the loader and the policy of the later callers. Use
// slices.Values for a list.
//
// A key that fails does not stop the others. Warm stops if the context ends, if Redis is
// unavailable, or if Redis refuses to store a value because memory or a permission is missing,
// since it would store nothing.
//
// The error joins the errors of the first keys that failed, at most ten, and the reason for the
// stop: the error of the context or of Redis, or ErrClosed.
func Warm[T any](ctx context.Context, c *Cache, keys iter.Seq[string], load func(ctx context.Context, key string) (T, error), p *Policy, o WarmOptions) (Warmed, error) {
	if o.Parallel < 0 {
		return Warmed{}, fmt.Errorf("warm: Parallel is %d, wanted none or more", o.Parallel)
	}
	if _, err := c.policy(p); err != nil {
		return Warmed{}, fmt.Errorf("warm: %w", err)
	}
	before := c.redis.writes.refused.Load() // which may have passed: the next fill tells
	w := warming{fetch: func(key string) (Source, error) {
		got, err := FetchResult(ctx, c, key, func(ctx context.Context) (T, error) { return load(ctx, key) }, p)
		return got.Source, err
	}, stopped: func() error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.run.life.Err() != nil:
			return ErrClosed
		}
		return c.redis.healthy()
	}, refused: func() error { return c.redis.writes.since(before) }}
	w.run(keys, max(o.Parallel, 0))
	w.stop(w.refused()) // the last ones too
	return w.done, w.err()
}

// A warming is one call of Warm.
type warming struct {
	fetch   func(key string) (Source, error)
	stopped func() error // the reason to fetch no more keys, or nil
	refused func() error // why nothing is stored, or nil

	mu   sync.Mutex // guards what follows
	done Warmed
	errs []error
	why  error
}

// run fetches keys until there are no more, or it is stopped.
func (w *warming) run(keys iter.Seq[string], parallel int) {
	if parallel == 0 {
		parallel = 8
	}
	turns := make(chan struct{}, parallel)
	var all sync.WaitGroup
	defer all.Wait()
	for key := range keys {
		turns <- struct{}{} // the fetch before it ends with the context
		if !w.goesOn() {
			return
		}
		all.Go(func() {
			defer func() { <-turns }()
			w.note(key)
		})
	}
}

// goesOn reports whether nothing has stopped it.
func (w *warming) goesOn() bool {
	err := w.stopped()
	if err == nil {
		err = w.refused()
	}
	return w.stop(err)
}

// stop records the reason to stop, if there is one, and reports whether there is none.
func (w *warming) stop(why error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == nil {
		w.why = why
	}
	return w.why == nil
}

// note fetches a key and counts what came of it.
func (w *warming) note(key string) {
	from, err := w.fetch(key)
	if err != nil && !isNotFound(err) && !w.goesOn() {
		return // the reason is not the key
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && from == FromLoader:
		w.done.Loaded++
	case err == nil:
		w.done.Already++
	case isNotFound(err):
		w.done.Missing++
	default:
		if w.done.Failed++; len(w.errs) < mostWarmErrors {
			w.errs = append(w.errs, fmt.Errorf("warm %s: %w", key, err))
		}
	}
}

func (w *warming) err() error {
	errs := w.errs
	if more := w.done.Failed - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("warm: %d more keys failed", more))
	}
	return errors.Join(append(errs, wrapped("warm", w.why))...)
}

// Hottest returns the keys that were recently read most often from L1, at most n, the hottest
// first: input for Warm after a restart. It scans L1, so do not call it constantly. Without Memory
// it returns none.
func (c *Cache) Hottest(n int) []string {
	if c.memory == nil || n <= 0 {
		return nil
	}
	current := c.memory.gate.current.Load()
	var keys []string
	for e := range c.memory.values.store.Hottest() {
		if e.Value.generation != current || e.Value.gone() {
			continue
		}
		if keys = append(keys, e.Key); len(keys) == n {
			break
		}
	}
	return keys
}
