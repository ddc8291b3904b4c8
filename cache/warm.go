package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
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
		c: c, ctx: ctx, parallel: o.Parallel, batch: min(o.Parallel, pipelineMost), turns: make(chan struct{}, o.Parallel),
		fills: newFillQueue(c.leases), before: c.redis.writes.refused.Load(),
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

// warmAll warms keys until there are no more, or it is stopped.
func (w *warming) warmAll(keys iter.Seq[string]) {
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
	w.turns <- struct{}{} // only this goroutine takes turns, so the first load finds one free
	<-w.turns
	b := &warmBatch{warming: w, call: asOneCall(w.ctx), queue: alone(flightID{})}
	left = b.warm(keys)
	for _, r := range b.single {
		b.fetch(r)
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

// startLoads begins loads, each at its turn, until turnWait has passed, a loader waits for one of
// the keys, or the warming stops.
func (b *warmBatch) startLoads() {
	late := time.After(turnWait)
	for len(b.jobs) > 0 {
		select {
		case b.turns <- struct{}{}:
			if !b.goesOn() || !b.load(b.jobs[0]) {
				<-b.turns
				return
			}
			b.jobs = b.jobs[1:]
		case <-b.queue.hurried():
			return
		case <-late:
			return
		case <-b.ctx.Done():
			return
		}
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

// load begins a load, whose turn ends when its value waits to be stored. It reports false after
// Close.
func (b *warmBatch) load(j *job) bool {
	w, ctx, queued := b.warming, flightContext{b.c.run.life, b.ctx}, make(chan struct{})
	j.send = func(ctx context.Context, p parcel) filling {
		return w.fills.fill(ctx, p, func() { close(queued) })
	}
	if !w.c.run.launch(func() {
		defer j.finish(ctx)
		j.perform(ctx)
	}) {
		return false
	}
	w.all.Go(func() {
		select {
		case <-queued:
		case <-j.fl.done:
		case <-w.ctx.Done():
		}
		<-w.turns
		select {
		case <-queued: // the load has ended, even if the context has too
			<-j.fl.done
		default:
			select {
			case <-j.fl.done:
			case <-w.ctx.Done():
				return
			}
		}
		w.c.counts.countRead(absent)
		w.countOutcome(j.key, got{source: FromLoader, stored: j.fl.outcome.accepted}, j.fl.outcome.err)
	})
	return true
}

// fetch fetches a key like Fetch, at its turn.
func (b *warmBatch) fetch(r *request) {
	w := b.warming
	w.turns <- struct{}{}
	if !w.goesOn() {
		<-w.turns
		return
	}
	w.all.Go(func() {
		defer func() { <-w.turns }()
		g, err := r.fetch(w.ctx)
		w.countOutcome(r.key, g, err)
	})
}

const (
	// popularSample is how many reads there are for each one that counts.
	popularSample = 16
	// popularCounted is how many keys are counted between two reports.
	popularCounted = 4096
	// popularReported is how many keys a report has.
	popularReported = pipelineMost
	popularInterval = 30 * time.Second
)

// popularRule has the permissions that an account needs for reports.
const popularRule = "+zincrby +zremrangebyrank +pexpire ~" + protocol.PopularPrefix + "*"

// A popularity counts a sample of the reads, and adds the keys with the most to a set in Redis. A
// nil popularity counts nothing.
type popularity struct {
	prefix  string
	redis   *backend
	refusal refusal

	mu     sync.Mutex
	counts map[string]int // since the latest report
}

func newPopularity(config Config, b *backend) *popularity {
	return &popularity{prefix: config.Prefix, redis: b, refusal: refusal{logger: config.Logger, subject: "popular keys", rule: popularRule}}
}

func (p *popularity) sample(key string) {
	if p != nil && rand.Uint32()%popularSample == 0 {
		p.countKey(key)
	}
}

// countKey implements the frequent-items algorithm of Misra and Gries: a key with more than one in
// popularCounted of the reads keeps a count, no matter how many other keys there are.
func (p *popularity) countKey(key string) {
	if len(key) > protocol.MaxPopularKey {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[string]int{}
	}
	if _, known := p.counts[key]; known || len(p.counts) < popularCounted {
		p.counts[key]++
		return
	}
	for other := range p.counts {
		if p.counts[other]--; p.counts[other] == 0 {
			delete(p.counts, other)
		}
	}
}

// sendCounts adds the counts to the set. If Redis does not take them, they are lost.
func (p *popularity) sendCounts(ctx context.Context) {
	p.mu.Lock()
	counts := p.counts
	p.counts = nil
	p.mu.Unlock()
	if len(counts) == 0 || p.refusal.lasts() {
		return
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	set, _, weight := protocol.PopularAt(p.prefix, p.redis.clock.now())
	_, err := send(ctx, p.redis, "report", func(ctx context.Context) ([]redis.Cmder, error) {
		return p.redis.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys[:min(len(keys), popularReported)] {
				pipe.ZIncrBy(ctx, set, weight*float64(counts[key]), key)
			}
			pipe.ZRemRangeByRank(ctx, set, 0, -protocol.MostPopular-1)
			pipe.PExpire(ctx, set, protocol.PopularLife)
			return nil
		})
	})
	p.refusal.logOnce(err)
}

// Popular returns the keys that processes with Config.Popularity and the same Config.Prefix have
// read most, at most n, the hottest first: input for Warm after a restart. A read counts half as
// much after an hour. Redis keeps up to 5,000 keys. The account needs
// +zrange %R~unstale:popular:*. Readers write the keys, so a loader must parse them as any other
// input. The error comes from Redis or from the context, or is ErrClosed. With package cachetest it
// returns none.
func (c *Cache) Popular(ctx context.Context, n int) ([]string, error) {
	switch {
	case c.run.life.Err() != nil:
		return nil, ErrClosed
	case n <= 0 || c.redis.clock.keeper != nil:
		return nil, nil
	}
	now, before, _ := protocol.PopularAt(c.config.Prefix, c.redis.clock.now())
	scores, err := send(ctx, c.redis, "popular", func(ctx context.Context) (map[string]float64, error) {
		cmds, err := c.redis.pipelined(ctx, askFirst, func(p redis.Pipeliner) error {
			for _, set := range []string{before, now} {
				p.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: set, Start: 0, Stop: n - 1, Rev: true})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		scores := map[string]float64{}
		for i, cmd := range cmds {
			for _, z := range cmd.(*redis.ZSliceCmd).Val() {
				scores[z.Member.(string)] += z.Score * [...]float64{protocol.PopularDecay, 1}[i]
			}
		}
		return scores, nil
	})
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = fmt.Errorf("an account needs +zrange %%R~%s*: %w", protocol.PopularPrefix, err)
	}
	if err != nil {
		return nil, wrapped("popular", err)
	}
	keys := slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	return keys[:min(n, len(keys))], nil
}
