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

// WarmOptions are those of Warm.
type WarmOptions struct {
	// Parallel is how many keys are fetched at once, below Config.Loads, which bounds all loaders. Zero: 8.
	Parallel int
}

// Warmed is what came of the keys of Warm. Those that it did not come to are not counted.
type Warmed struct {
	Loaded  int // now
	Already int // cached before, or by somebody else meanwhile
	Missing int // known not to exist
	Failed  int
}

// Warm fetches keys side by side, so that those that are not cached are loaded and stored: each as Fetch does it, under its
// lease, and with the same loader and policy as those who will ask for it. Use slices.Values for a list. A key that fails
// does not stop the others; a context that ends does, and so does a Redis that is away, or that refuses to store a value for
// lack of memory or of a right, as Healthy says it: nothing would be stored.
//
// The error joins those of the first keys that failed, ten at most, and what stopped Warm: the context's error, Redis', or
// ErrClosed.
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
		case c.life.Err() != nil:
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
	stopped func() error // why no more keys are to be fetched, or nil
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

// stop takes note of what stops it, if anything does, and reports whether nothing has.
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
		return // what has stopped it is no fault of the key
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

// Hottest returns the keys, n at most, that were read from this process' memory most often of late, the hottest first:
// what Warm may begin with after a restart. It looks through the memory, so do not call it all the time. Without Memory
// there are none.
func (c *Cache) Hottest(n int) []string {
	if c.memory == nil || n <= 0 {
		return nil
	}
	current := c.memory.current.Load()
	var keys []string
	for e := range c.memory.store.Hottest() {
		if e.Value.generation != current || e.Value.gone() {
			continue
		}
		if keys = append(keys, e.Key); len(keys) == n {
			break
		}
	}
	return keys
}
