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
	// Parallel is how many keys are loaded concurrently, below Config.Loads, which bounds all
	// loaders. Zero: 8.
	Parallel int
}

// Warmed counts the keys of Warm by outcome. Keys that it did not reach are not counted.
type Warmed struct {
	Loaded  int // and stored, now
	Already int // cached before, or by another caller meanwhile
	// loaded and not stored, for example because an invalidation came meanwhile
	Unstored int
	Missing  int // known not to exist
	Failed   int
}

// Warm loads and stores keys that are not cached: in parallel, each under its lease, and in the
// order of keys. It looks up and stores up to 500 keys per round trip. Use the loader and the
// policy of the later callers. Use slices.Values for a list.
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
	p, err := c.policy(p)
	if err != nil {
		return Warmed{}, fmt.Errorf("warm: %w", err)
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	w := &warming{
		c: c, ctx: ctx, parallel: o.Parallel, batch: min(o.Parallel, pipelineMost), turns: make(chan struct{}, o.Parallel),
		fills: newFillQueue(c.leases), before: c.redis.writes.refused.Load(),
		ask: func(key string) (r *request, known bool, err error) {
			if r, err = newRequest[T](c, key, p, c.eagerness(p)); err != nil {
				return nil, false, err
			}
			if r.standing, err = c.standing(ctx, p); err != nil {
				return nil, false, err
			}
			if r.standing == anything {
				_, known = inMemory[T](c, key, p, r.eager)
			}
			r.load = func(ctx context.Context) (any, error) {
				value, err := load(ctx, key)
				return asRead(c.config.Codec, value), c.asNotFound(err)
			}
			return r, known, nil
		},
	}
	w.run(keys)
	w.stop(w.c.redis.writes.since(w.before)) // the last ones too
	return w.done, w.err()
}

// A warming is one call of Warm.
type warming struct {
	c     *Cache
	ctx   context.Context
	ask   func(key string) (r *request, known bool, err error) // known: in memory
	fills *fillQueue
	// before is the refusal of Redis at the start. It may have passed: the next fill tells.
	before *error

	parallel int
	turns    chan struct{}  // of loads
	all      sync.WaitGroup // for the outcomes
	batch    int            // how many keys the next lookup has

	mu   sync.Mutex // guards what follows
	done Warmed
	errs []error
	why  error
}

// run warms keys until there are no more, or it is stopped.
func (w *warming) run(keys iter.Seq[string]) {
	defer w.all.Wait()
	var waiting []string
	for key := range keys {
		if waiting = append(waiting, key); len(waiting) < w.batch {
			continue
		}
		if !w.goesOn() {
			return
		}
		waiting = w.several(waiting)
	}
	for len(waiting) > 0 && w.goesOn() {
		waiting = w.several(waiting)
	}
}

// goesOn reports whether nothing has stopped it.
func (w *warming) goesOn() bool {
	switch {
	case w.ctx.Err() != nil:
		return w.stop(w.ctx.Err())
	case w.c.run.life.Err() != nil:
		return w.stop(ErrClosed)
	}
	err := w.c.redis.healthy()
	if err == nil {
		err = w.c.redis.writes.since(w.before)
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

// note counts the outcome of a key.
func (w *warming) note(key string, g got, err error) {
	if err != nil && !isNotFound(err) && !w.goesOn() {
		return // the reason is not the key
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && g.source == FromLoader && !g.stored:
		w.done.Unstored++
	case err == nil && g.source == FromLoader && !g.joined:
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
