package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
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
	o.Parallel = cmp.Or(o.Parallel, 8)
	w := &warming{
		c: c, ctx: ctx, parallel: o.Parallel, batch: min(o.Parallel, pipelineMost), before: c.redis.writes.refused.Load(),
		work: make(chan func() bool), loaded: make(chan *loadedJob, pipelineMost),
		ask: func(key string) (r *request, known bool, err error) {
			if r, err = newRequest[T](c, key, p, c.eagerness(p)); err != nil {
				return nil, false, err
			}
			if r.constraint, err = c.readConstraint(ctx, p); err != nil {
				return nil, false, err
			}
			if r.constraint == anything {
				_, known = inMemory[T](c, key, p, r.eager)
			}
			r.load = func(ctx context.Context) (any, error) {
				value, err := load(ctx, key)
				return asRead(c.config.Codec, value), c.asNotFound(err)
			}
			return r, known, nil
		},
	}
	w.warmAll(keys)
	w.stop(w.c.redis.writes.since(w.before)) // the last ones too
	return w.result()
}

// A warming is one call of Warm.
type warming struct {
	c   *Cache
	ctx context.Context
	ask func(key string) (r *request, known bool, err error) // known: in memory
	// before is the refusal of Redis at the start. It may have passed: the next fill tells.
	before *error
	batch  int // how many keys the next lookup has

	parallel, workers int
	work              chan func() bool // for a worker, which ends if it reports false
	busy              sync.WaitGroup   // for the outcomes of what workers were given

	loaded  chan *loadedJob // to be stored: those that come during a pipeline share the next one
	sending sync.Mutex      // held for a pipeline, also to take from loaded

	mu   sync.Mutex // guards what follows
	done Warmed
	errs []error
	why  error
}

// warmAll warms keys until there are no more, or it is stopped.
func (w *warming) warmAll(keys iter.Seq[string]) {
	defer w.settle()
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

// settle waits for the outcomes. After the end of the context, it waits only for those of ended
// loads.
func (w *warming) settle() {
	close(w.work)
	select {
	case <-ended(&w.busy):
	case <-w.ctx.Done():
	}
	w.sending.Lock()
	for len(w.loaded) > 0 {
		w.sendLoaded()
	}
	w.sending.Unlock()
	w.startPipeline() // for values that came before the unlock
}

// goesOn reports whether nothing has stopped it.
func (w *warming) goesOn() bool {
	switch {
	case w.ctx.Err() != nil:
		return w.stop(w.ctx.Err())
	case w.c.run.life.Err() != nil:
		return w.stop(ErrClosed)
	}
	return w.stop(cmp.Or(w.c.redis.healthy(), w.c.redis.writes.since(w.before)))
}

// stop records the reason to stop, if there is one, and reports whether there is none.
func (w *warming) stop(why error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = cmp.Or(w.why, why)
	return w.why == nil
}

// countOutcome counts the outcome of a key.
func (w *warming) countOutcome(key string, g got, err error) {
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

func (w *warming) result() (Warmed, error) {
	w.mu.Lock() // loads may continue after the end of the context
	defer w.mu.Unlock()
	errs := slices.Clone(w.errs)
	if more := w.done.Failed - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("warm: %d more keys failed", more))
	}
	return w.done, errors.Join(append(errs, wrapped("warm", w.why))...)
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
		if !e.Value.note.of(current) || e.Value.gone() {
			continue
		}
		if keys = append(keys, e.Key); len(keys) == n {
			break
		}
	}
	return keys
}

// turnWait is how long keys of a batch hold their leases before their loads begin, at most: other
// callers wait for them.
const turnWait = 100 * time.Millisecond

// A warmBatch is the part of a warming that one lookup covers.
type warmBatch struct {
	*warming
	call   context.Context // of its requests that the breaker counts as one
	queue  *flight         // of no key: callers that a loader waits for hurry it
	jobs   []*job          // whose loads have not begun
	single requests        // to be fetched one by one
}

// several warms keys, and sets how many the next batch has: as many as have their turns in time. It
// returns those that had none. It does not wait for the loads.
func (w *warming) several(keys []string) (left []string) {
	// The first load then finds a free worker.
	if !w.give(func() bool { w.busy.Done(); return true }, nil, nil) {
		return keys
	}
	b := &warmBatch{warming: w, call: asOneCall(w.ctx), queue: alone(flightID{})}
	left = b.warm(keys)
	for _, r := range b.single {
		if !w.goesOn() {
			break
		}
		w.fetch(r)
	}
	return left
}

// warm begins the loads of the keys that are not cached.
func (b *warmBatch) warm(keys []string) (left []string) {
	if !b.c.run.stay() { // Close waits until the leases are given back
		return nil
	}
	defer b.c.run.leave()
	defer b.letGo()
	fewest := min(b.parallel, pipelineMost)
	if !b.lookUp(keys) {
		b.batch = max(b.batch/2, fewest)
		return nil
	}
	b.lease()
	began, all := time.Now(), len(b.jobs)
	b.startLoads()
	for _, j := range b.jobs {
		left = append(left, j.key)
	}
	switch {
	case len(left) > 0:
		b.batch = max(all-len(left), fewest)
	case time.Since(began) < turnWait/2:
		b.batch = min(2*b.batch, pipelineMost)
	}
	return left
}

// lookUp counts the keys that are cached, and makes jobs of those that are not. It reports whether
// Redis has answered.
func (b *warmBatch) lookUp(keys []string) bool {
	var asked requests
	for _, key := range keys {
		switch r, known, err := b.ask(key); {
		case known, err != nil:
			b.countOutcome(key, got{source: FromMemory}, err)
		case r.constraint == loaded:
			b.single = append(b.single, r)
		default:
			asked = append(asked, r)
		}
	}
	if len(asked) == 0 {
		return true
	}
	mark := b.c.memory.mark()
	readings, err := (&group{c: b.c, requests: asked}).readAll(b.call)
	if err != nil {
		b.single = append(b.single, asked...)
		return false
	}
	for i, r := range asked {
		switch found := readings[i]; {
		case found.state == fresh && found.entry.Negative != 0:
			b.c.counts.countRead(fresh)
			b.countOutcome(r.key, got{source: FromRedis}, ErrNotFound)
		case found.state == fresh && !found.early:
			b.c.counts.countRead(fresh)
			r.keep(found, mark)
			b.countOutcome(r.key, got{source: FromRedis}, nil)
		case found.text != nil || found.state == foreign: // to be replaced, or left alone
			b.single = append(b.single, r)
		default:
			if fl, own := b.c.flights.join(r.flightID(), b.queue); own {
				b.jobs = append(b.jobs, r.job(fl, found))
			} else {
				b.single = append(b.single, r)
			}
		}
	}
	return true
}

// lease takes the leases of all jobs. Keys that get none are fetched one by one.
func (b *warmBatch) lease() {
	(&manyLoad{group: &group{c: b.c}}).acquire(flightContext{b.c.run.life, b.call}, b.jobs)
	var leased []*job
	for _, j := range b.jobs {
		switch {
		case j.fl.ended(): // another caller has stored the value
			b.c.counts.countRead(absent)
			b.countOutcome(j.key, got{source: FromRedis}, j.fl.outcome.err)
		case j.lease != "":
			leased = append(leased, j)
		case j.unread && j.away: // no answer twice
			b.c.flights.deliver(j.fl, nothing)
			b.countOutcome(j.key, got{}, ErrRedisTimeout)
		default:
			b.c.flights.deliver(j.fl, nothing)
			b.single = append(b.single, j.request)
		}
	}
	b.jobs = leased
}

// startLoads gives jobs to workers until turnWait has passed, a loader waits for one of the keys,
// or the warming stops.
func (b *warmBatch) startLoads() {
	late := time.After(turnWait)
	for len(b.jobs) > 0 && b.goesOn() {
		j := b.jobs[0]
		if !b.give(func() bool { return b.load(j) }, b.queue.hurried(), late) {
			return
		}
		b.jobs = b.jobs[1:]
	}
}

// letGo gives up the jobs whose loads have not begun. Their waiting callers ask again.
func (b *warmBatch) letGo() {
	b.c.leases.giveBackAtLast(b.ctx, held(b.jobs...)...)
	for _, j := range b.jobs {
		b.c.flights.deliver(j.fl, nothing)
	}
	b.jobs = nil
}

// give gives work to a worker, which reports its end with busy.Done. It waits for a free worker
// until one of the channels is closed or ready, the context ends, or Close begins. Only the
// goroutine of Warm calls it.
func (w *warming) give(do func() bool, hurried <-chan struct{}, late <-chan time.Time) bool {
	w.busy.Add(1)
	select {
	case w.work <- do:
		return true
	default:
	}
	if w.workers < w.parallel && w.startWorker() {
		w.workers++
	}
	select {
	case w.work <- do:
		return true
	case <-hurried:
	case <-late:
	case <-w.ctx.Done():
	case <-w.c.run.life.Done():
	}
	w.busy.Done()
	return false
}

// startWorker reports false after Close.
func (w *warming) startWorker() bool {
	return w.c.run.launch(func() {
		returned := false
		defer func() {
			if !returned { // a loader has ended the goroutine
				w.startWorker()
			}
		}()
		for do := range w.work {
			if !do() {
				break
			}
		}
		returned = true
	})
}

// load loads a key, and has its value stored. It does not wait for the store. If the loader takes
// too long, another worker takes its place, and it reports false.
func (w *warming) load(j *job) (goesOn bool) {
	ctx := flightContext{w.c.run.life, w.ctx}
	end := sync.OnceFunc(func() { w.end(j) })
	queued := false
	defer func() {
		if failure := recover(); !queued {
			j.conclude(ctx, failure)
			end()
		}
	}()
	goesOn = true
	fill, o, ok := j.loadInTime(ctx, func() { w.startWorker(); end() })
	if !ok {
		return false
	}
	one := &loadedJob{job: j, outcome: o}
	one.pack(context.WithoutCancel(ctx), fill)
	if one.parcel.text == nil {
		w.c.endAll(context.WithoutCancel(ctx), []*loadedJob{one})
		return true
	}
	queued = true
	w.loaded <- one
	w.startPipeline()
	return true
}

// startPipeline stores the loaded values in a new goroutine, unless a pipeline is under way. Every
// pipeline starts the next one.
func (w *warming) startPipeline() {
	if len(w.loaded) == 0 || !w.sending.TryLock() {
		return
	}
	send := func() {
		defer w.startPipeline() // for values that came meanwhile
		defer w.sending.Unlock()
		w.sendLoaded()
	}
	if !w.c.run.launch(send) { // after Close
		send()
	}
}

// sendLoaded stores in one pipeline. The caller holds sending.
func (w *warming) sendLoaded() {
	ctx := context.WithoutCancel(flightContext{w.c.run.life, w.ctx})
	var loads []*loadedJob
	defer func() {
		failure := recover() // of the client
		for _, l := range loads {
			l.conclude(ctx, failure)
			w.end(l.job)
		}
	}()
	for bytes := 0; len(loads) < pipelineMost && bytes < pipelineBytes && len(w.loaded) > 0; {
		one := <-w.loaded
		loads = append(loads, one)
		bytes += len(one.parcel.text)
	}
	w.c.store(ctx, loads)
	w.c.endAll(ctx, loads)
}

// end counts the outcome of a load.
func (w *warming) end(j *job) {
	defer w.busy.Done()
	w.c.counts.countRead(absent)
	w.countOutcome(j.key, got{source: FromLoader, stored: j.fl.outcome.accepted}, j.fl.outcome.err)
}

// fetch fetches a key like Fetch, at its turn.
func (w *warming) fetch(r *request) {
	w.give(func() bool {
		defer w.busy.Done()
		g, err := r.fetch(w.ctx)
		w.countOutcome(r.key, g, err)
		return true
	}, nil, nil)
}
