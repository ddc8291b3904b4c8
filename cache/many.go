package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// FetchMany is like Fetch for several keys. It makes one round trip to each node per 500 cached
// keys or about 256 KiB of values, and one more for the leases of the others, which one call of
// load gets. A key that a round trip does not answer in time is requested again once, with its
// lease. load returns the values of the keys that exist. Its context is like the context of a
// Loader, and the settings of a Fill apply to the whole load.
//
// The result has the values that were found, even if there is an error: a *LoadError with the keys
// that could not be loaded, or an error for the whole call, as of Fetch. Callers of FetchMany in
// one process share loads. A load can fail because of any of its keys, so its error is also
// returned to waiting callers of all of its keys. Other waiting callers load again.
func FetchMany[T any](ctx context.Context, c *Cache, keys []string, load func(ctx context.Context, keys []string) (map[string]T, error), p *Policy) (map[string]T, error) {
	found := make(map[string]T, len(keys))
	b := &group{c: c, load: func(ctx context.Context, keys []string, each func(string, any)) error {
		values, err := load(ctx, keys)
		for key, value := range values {
			each(key, asRead(c.config.Codec, value))
		}
		return c.asNotFound(err)
	}}
	p = p.on(c.config.Policy)
	asked := make(map[string]bool, len(keys))
	if c.run.life.Err() != nil {
		return nil, ErrClosed
	}
	standing, err := c.readConstraint(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if asked[key] {
			continue
		}
		asked[key] = true
		c.popularity.sample(key)
		eager := c.eagerness(p)
		if standing == anything {
			if result, ok := inMemory[T](c, key, p, eager); ok {
				found[key] = result.Value
				continue
			}
		}
		r, err := newRequest[T](c, key, p, eager)
		if err != nil {
			return nil, err
		}
		r.constraint = standing
		b.requests = append(b.requests, r)
	}
	values, err := b.fetch(ctx)
	for key, value := range values {
		found[key], _ = value.(T)
	}
	return found, err
}

// A group is one call for several keys.
type group struct {
	c        *Cache
	requests requests
	load     func(ctx context.Context, keys []string, each func(string, any)) error
	arrival  uint64          // see outcome.counts
	wanted   map[string]bool // the keys to load
}

// fetch returns what is known to exist of the group.
func (b *group) fetch(ctx context.Context) (map[string]any, error) {
	if len(b.requests) == 0 {
		return nil, ctx.Err()
	}
	ctx = asOneCall(ctx)
	b.arrival = b.c.loaders.events.Load()
	mark := b.c.memory.mark()
	readings, err := b.readAll(ctx)
	if ended := ctx.Err(); ended != nil {
		for range b.requests {
			b.c.counts.countRead(absent)
		}
		return nil, ended
	}
	values := map[string]any{}
	var missing, expired []*want
	for i, r := range b.requests {
		w := &want{request: r, away: err != nil}
		if err == nil {
			w.found = readings[i]
		}
		if r.constraint == loaded {
			w.found = w.found.past()
		}
		found := w.found
		b.c.counts.countRead(found.state)
		if found.state == fresh && b.c.shadows != nil {
			b.c.shadows.hit(ctx, r, found, mark, b.loader(r.key))
		}
		switch {
		case found.state < stale && !(found.state == onError && b.c.flights.pauses.last(r.name)):
			missing = append(missing, w)
		case found.entry.Negative == 0:
			values[r.key] = found.value
			if found.state == fresh {
				r.keep(found, mark)
			}
			if found.state == stale || found.early {
				expired = append(expired, w)
			}
		}
	}
	b.refresh(ctx, expired)
	err = b.fill(ctx, missing, values)
	if err == nil || ctx.Err() != nil {
		return values, err
	}
	if left := b.bridge(ctx, missing, values, err); len(left) > 0 {
		return values, &LoadError{Keys: left, Err: err}
	}
	return values, nil
}

// loader returns a loader of one key.
func (b *group) loader(key string) func(context.Context) (any, error) {
	return func(ctx context.Context) (value any, err error) {
		found := false
		err = b.load(ctx, []string{key}, func(name string, v any) {
			if name == key {
				value, found = v, true
			}
		})
		if err == nil && !found {
			err = ErrNotFound
		}
		return value, err
	}
}

// bridge uses old values for keys whose state is unknown after a failed load, if Redis still holds
// them: an invalidation deletes them. It returns the keys that have none.
func (b *group) bridge(ctx context.Context, wants []*want, values map[string]any, failure error) (left []string) {
	held := &group{c: b.c}
	var old []reading
	for _, w := range wants {
		switch {
		case w.known:
		case w.found.state == onError && !isNotFound(failure):
			held.requests, old = append(held.requests, w.request), append(old, w.found)
		default:
			left = append(left, w.key)
		}
	}
	if len(old) == 0 {
		return left
	}
	again, err := held.readAll(ctx)
	for i, r := range held.requests {
		if err != nil || !old[i].standsAs(again[i]) {
			left = append(left, r.key)
			continue
		}
		values[r.key] = again[i].value
	}
	return left
}

// A manyLoad is one call of the loader for several keys of a group.
type manyLoad struct {
	*group
	jobs    []*job
	fl      *flight // of no key: callers that wait for the flights of the jobs hurry it
	unasked bool    // see finding
}

func (b *group) newLoad() *manyLoad { return &manyLoad{group: b, fl: alone(flightID{})} }

// launchAll runs the load in a new goroutine.
func (l *manyLoad) launchAll(ctx context.Context) {
	if len(l.jobs) > 0 && !l.c.run.launch(func() { l.loadAll(flightContext{l.c.run.life, ctx}) }) {
		l.deliverAll(l.jobs, outcome{err: ErrClosed})
	}
}

// deliverAll gives the outcome to all waiting callers of the jobs, except those that have theirs.
func (l *manyLoad) deliverAll(jobs []*job, o outcome) {
	l.c.flights.sealAll(jobs)
	for _, j := range jobs {
		l.c.flights.deliver(j.fl, o)
	}
}

// loadAll loads the values, each under its lease if possible. It waits for loads of other processes
// only if it has nothing to load. Otherwise its waiting callers continue, and so does the group
// once its own values are loaded.
func (l *manyLoad) loadAll(ctx context.Context) {
	defer l.finish(ctx)
	end := time.Now().Add(l.c.leases.life())
	jobs := l.jobs
	for pause := firstPause; len(jobs) > 0; pause = min(2*pause, longestPause) {
		mine, others := l.acquire(ctx, jobs)
		if l.unasked {
			mine = slices.DeleteFunc(mine, func(j *job) bool { return j.lease == "" })
		}
		switch {
		case ctx.Err() != nil:
			l.deliverAll(l.jobs, outcome{err: ErrClosed})
			return
		case time.Now().After(end):
			mine, others = append(mine, others...), nil // the holders of those had enough time
		}
		if len(mine) > 0 || l.unasked {
			l.deliverAll(others, nothing)
			l.perform(ctx, mine)
			break
		}
		if jobs = others; sleep.For(ctx, jittered(pause)) != nil {
			l.deliverAll(jobs, outcome{err: ErrClosed})
			return
		}
	}
	l.deliverAll(l.jobs, nothing)
}

// finish releases the unused leases. loadAll defers it: see job.finish.
func (l *manyLoad) finish(ctx context.Context) {
	failure := recover()
	for _, j := range l.jobs {
		if !j.fl.ended() {
			l.c.flights.deliver(j.fl, outcome{err: l.c.loaders.panicked(j.key, failure), started: j.started})
		}
	}
	l.c.leases.giveBackAtLast(ctx, held(l.jobs...)...)
}

// acquire requests all leases in one step. It ends the flights of values that others have stored
// meanwhile, and returns the jobs to load, with or without a lease, and those that another caller
// loads.
func (l *manyLoad) acquire(ctx context.Context, jobs []*job) (mine, others []*job) {
	var asking []*job
	var claims []*claim
	for _, j := range jobs {
		if !j.leasable() {
			mine = append(mine, j)
			continue
		}
		if asking == nil {
			asking, claims = make([]*job, 0, len(jobs)), make([]*claim, 0, len(jobs))
		}
		asking, claims = append(asking, j), append(claims, &j.claim)
	}
	if len(asking) == 0 {
		return mine, nil
	}
	mark := l.c.memory.mark()
	// The leases to release depend on the answer, so the command must not end with ctx.
	grants := l.c.leases.takeAll(detached(ctx), claims, asking[0].tags, asking[0].longest())
	for i, j := range asking {
		if j.answered(ctx, grants[i], mark) {
			others = append(others, j)
		} else if !j.fl.ended() {
			mine = append(mine, j)
		}
	}
	return mine, others
}

// perform loads for jobs in one call, stores what they may store, and ends their flights.
func (l *manyLoad) perform(ctx context.Context, jobs []*job) {
	if len(jobs) == 0 {
		return
	}
	keys := make([]string, len(jobs))
	fill := &Fill{keys: keys}
	var unstored []*job
	for i, j := range jobs {
		if keys[i] = j.key; j.lease == "" && !j.away {
			unstored = append(unstored, j)
		}
	}
	l.c.flights.sealAll(unstored) // as in request.runFlight
	loaded, brought, err := l.call(ctx, keys, fill)
	loads := make([]*loadedJob, len(jobs))
	for i, j := range jobs {
		value, ok := brought[j.key]
		one := &loadedJob{job: j, outcome: outcome{started: loaded.started}}
		switch loads[i] = one; {
		case err != nil:
			one.outcome.err, one.outcome.keys = err, keys
		case ok:
			one.outcome.value = value
		default:
			one.outcome.err, one.outcome.negative = ErrNotFound, true
		}
		j.started, j.cost = loaded.started, loaded.cost
	}
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		for _, one := range loads {
			one.pack(ctx, fill)
		}
		l.c.store(ctx, loads)
	}
	l.c.endAll(ctx, loads)
}

// A loadedJob is a job whose load has ended.
type loadedJob struct {
	*job
	outcome outcome
	parcel  parcel // without a text: nothing can be stored
}

// pack sets the parcel of a job that has a lease.
func (l *loadedJob) pack(ctx context.Context, fill *Fill) {
	if l.lease == "" {
		return
	}
	var err error
	if l.parcel, err = l.job.pack(ctx, fill, &l.outcome); err != nil {
		l.request.c.counts.failed()
	}
}

// store fills Redis and the memory with all parcels, in one pipeline.
func (c *Cache) store(ctx context.Context, loads []*loadedJob) {
	loads = slices.DeleteFunc(slices.Clone(loads), func(l *loadedJob) bool { return l.parcel.text == nil })
	parcels := make([]parcel, len(loads))
	for i, l := range loads {
		parcels[i] = l.parcel
	}
	for i, f := range c.leases.fill(ctx, parcels) {
		l := loads[i]
		if f.err != nil {
			c.counts.failed()
			continue
		}
		if l.filled(l.parcel, f, &l.outcome); f.accepted {
			l.lease = ""
		}
	}
}

// endAll releases the leases that jobs still hold, and ends their flights.
func (c *Cache) endAll(ctx context.Context, loads []*loadedJob) {
	jobs := make([]*job, len(loads))
	for i, l := range loads {
		jobs[i] = l.job
	}
	c.giveBack(ctx, jobs...) // before answering callers, who may request them
	c.flights.sealAll(jobs)
	for _, l := range loads {
		l.lease = ""
		c.flights.deliver(l.fl, l.outcome)
	}
}

// call runs the loader, and leaves it behind after the hard timeout.
func (l *manyLoad) call(ctx context.Context, keys []string, fill *Fill) (loading, map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, nil), l.c.config.HardTimeout) // the loader's calls are its own
	defer cancel()
	brought, done := map[string]any{}, make(chan struct{})
	one := &loading{fl: l.fl, key: fmt.Sprintf("%d keys", len(keys)), load: func(ctx context.Context) (any, error) {
		return nil, l.load(ctx, keys, func(key string, value any) { brought[key] = value })
	}}
	if !l.c.run.launch(func() { defer close(done); l.c.loaders.callLoader(ctx, fill, one) }) {
		return loading{}, nil, ErrClosed
	}
	select {
	case <-done:
		if one.started != 0 && (one.err == nil || ctx.Err() == nil) {
			return *one, brought, one.err
		}
	case <-ctx.Done():
	}
	return loading{}, nil, l.c.overdue()
}

// readAll asks Redis for all keys. The error means that it has answered for none.
func (b *group) readAll(ctx context.Context) (readings []reading, err error) {
	answered, unread := false, []reading{{unread: true}}
	readings = make([]reading, 0, len(b.requests))
	size := func(r *request) int { return b.c.redis.sizes.of(r.name) }
	rest := pipelines(b.requests, size, func(chunk []*request) error {
		var more []reading
		if more, err = b.readOnce(ctx, chunk); err != nil {
			more = slices.Repeat(unread, len(chunk))
		}
		readings = append(readings, more...)
		answered = answered || err == nil || errors.As(err, new(partial))
		return err
	})
	if !answered {
		return nil, err
	}
	return append(readings, slices.Repeat(unread, len(rest))...), nil
}

// readOnce implements read in one pipeline, a second one for the versions of tags that only the
// entries name, and a third one for sliding values.
func (b *group) readOnce(ctx context.Context, chunk requests) ([]reading, error) {
	raws, stamps, err := chunk.getValues(ctx)
	if err != nil {
		return nil, err
	}
	var more []string
	for _, got := range raws {
		if got.text == nil || b.c.config.Plain {
			continue
		}
		var e entry
		// entries with fields in another order are read too, more slowly
		if e.parseOwn(got.text) {
			more = append(more, e.tagNames()...)
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(tag string) bool { _, ok := stamps[tag]; return ok })
	if stamps, err = b.c.versions.with(ctx, stamps, more); err != nil {
		return nil, err
	}
	for _, got := range raws { // before any sliding value counts as extended
		if got.err != nil {
			return nil, got.err
		}
	}
	readings := make([]reading, len(raws))
	var sliding []int
	for i, got := range raws {
		if readings[i], err = chunk[i].judgeRaw(ctx, got, stamps); err != nil {
			return nil, err
		}
		if chunk[i].slides(&readings[i]) {
			sliding = append(sliding, i)
		}
	}
	if len(sliding) == 0 {
		return readings, nil
	}
	slid, by := make([]reading, len(sliding)), make(requests, len(sliding))
	for i, at := range sliding {
		slid[i], by[i] = readings[at], chunk[at]
	}
	if err := by.slide(ctx, slid); err != nil {
		return nil, err
	}
	for i, at := range sliding {
		readings[at] = slid[i]
	}
	return readings, nil
}

// A want is a key of a group whose value must be loaded.
type want struct {
	*request
	found reading
	away  bool    // Redis
	fl    *flight // to wait for
	own   bool    // the flight: the group's to load
	known bool    // what the key's value is, or that it has none
}

// job returns what the flight has to do.
func (w *want) job(fl *flight) *job {
	j := w.request.job(fl, w.found)
	j.away, j.foreign = w.away, w.found.state == foreign
	return j
}

// flightID returns the ID of the flights that it can join.
func (w *want) flightID() flightID { return flightID{name: w.name, kind: w.kind, many: true} }

// refresh loads new values in the background, except those that another caller in this process
// loads. No caller waits for them. A value without a lease could not be stored, and would be loaded
// again for each call.
func (b *group) refresh(ctx context.Context, wants []*want) {
	l := b.newLoad()
	l.unasked = true
	for _, w := range wants {
		if b.c.flights.under(w.request.flightID()) || b.c.flights.pauses.last(w.name) {
			continue // Fetch does, or a load has failed
		}
		if fl, own := b.c.flights.join(w.flightID(), l.fl); own {
			l.jobs = append(l.jobs, w.job(fl))
		}
	}
	l.launchAll(ctx)
}

// fill loads values, and waits for those that others load.
func (b *group) fill(ctx context.Context, wants []*want, values map[string]any) (err error) {
	b.wanted = make(map[string]bool, len(wants))
	for _, w := range wants {
		b.wanted[w.key] = true
	}
	if err := FillFrom(ctx).refuse(&b.c.loaders, func(key string) bool { return b.wanted[key] }); err != nil {
		return err
	}
	for round := 0; len(wants) > 0 && err == nil; round++ {
		l := b.newLoad()
		var mine, theirs []*want
		b.c.flights.together(func() {
			for _, w := range wants {
				b.enter(w, l, round)
			}
		})
		for _, w := range wants {
			if w.own {
				mine = append(mine, w)
				l.jobs = append(l.jobs, w.job(w.fl))
			} else {
				theirs = append(theirs, w)
			}
		}
		l.launchAll(ctx)
		// an error of these is of this call, so they come first
		wants, err = b.await(ctx, append(mine, theirs...), values)
	}
	return err
}

// enter finds the flight to wait for, which is of the load if it is the group's own. The caller
// holds the flights together.
func (b *group) enter(w *want, l *manyLoad, round int) {
	switch id := w.flightID(); {
	case round >= mostRounds, w.found.state == foreign, w.constraint == loaded:
		w.fl, w.own = alone(id), true
	case w.fl != nil: // without a usable result
		w.fl, w.own = b.c.flights.follow(w.fl, l.fl)
	default:
		w.fl, w.own = b.c.flights.enter(id, l.fl)
	}
}

// await waits for the flights, and collects the known values. It returns those of wants whose
// flights had no usable result, and the first error.
func (b *group) await(ctx context.Context, wants []*want, values map[string]any) (again []*want, err error) {
	if FillFrom(ctx).runsIn(&b.c.loaders) {
		for _, w := range wants {
			w.fl.hurry()
		}
	}
	for _, w := range wants {
		select {
		case <-w.fl.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if !w.fl.ended() {
			continue
		}
		switch o := &w.fl.outcome; {
		case o.left, !w.own && !(o.counts(b.arrival, w.p.o.Tags) && b.shares(o)):
			again = append(again, w)
		case o.err != nil && !o.negative:
			if err == nil {
				err = o.err
			}
		default:
			if w.known = true; !o.negative {
				values[w.key] = o.value
			}
		}
	}
	return again, err
}

// shares reports whether the group can use the outcome of another caller's load. A failed load or a
// timeout may be about any of its keys, so it counts if the group has all of them.
func (b *group) shares(o *outcome) bool {
	return !o.failed() || !slices.ContainsFunc(o.keys, func(key string) bool { return !b.wanted[key] })
}
