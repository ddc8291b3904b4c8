package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// A manyLoad is one call of the loader for several keys of a group.
type manyLoad struct {
	*group
	jobs    []*job
	fl      *flight // of no key: callers that wait for the flights of the jobs hurry it
	unasked bool    // see finding
}

func (b *group) newLoad() *manyLoad { return &manyLoad{group: b, fl: alone(flightID{})} }

// start runs the load in a new goroutine.
func (l *manyLoad) start(ctx context.Context) {
	if len(l.jobs) > 0 && !l.c.run.launch(func() { l.run(flightContext{l.c.run.life, ctx}) }) {
		l.end(l.jobs, outcome{err: ErrClosed})
	}
}

// end gives the outcome to all waiting callers of the jobs, except those that have theirs.
func (l *manyLoad) end(jobs []*job, o outcome) {
	l.c.flights.sealAll(jobs)
	for _, j := range jobs {
		l.c.flights.end(j.fl, o)
	}
}

// run loads the values, each under its lease if possible. It waits for loads of other processes
// only if it has nothing to load. Otherwise its waiting callers continue, and so does the group
// once its own values are loaded.
func (l *manyLoad) run(ctx context.Context) {
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
			l.end(l.jobs, outcome{err: ErrClosed})
			return
		case time.Now().After(end):
			mine, others = append(mine, others...), nil // the holders of those had enough time
		}
		if len(mine) > 0 || l.unasked {
			l.end(others, nothing)
			l.perform(ctx, mine)
			break
		}
		if jobs = others; sleep.For(ctx, jittered(pause)) != nil {
			l.end(jobs, outcome{err: ErrClosed})
			return
		}
	}
	l.end(l.jobs, nothing)
}

// finish releases the unused leases. run defers it: see job.finish.
func (l *manyLoad) finish(ctx context.Context) {
	failure := recover()
	for _, j := range l.jobs {
		if !j.fl.ended() {
			l.c.flights.end(j.fl, outcome{err: l.c.loaders.panicked(j.key, failure), started: j.started})
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
		switch g := grants[i]; {
		case g.kind == "lease":
			j.granted(g, mark)
			mine = append(mine, j)
		case g.kind == "taken" && j.request.standing != loaded && !j.enough(g):
			others = append(others, j)
		case g.kind == "value":
			switch found, err := j.request.judge(ctx, []byte(g.text), g.stamps); {
			case err != nil:
				j.away = classify(err) != nil
				mine = append(mine, j)
			case found.state == foreign:
				mine = append(mine, j)
			case found.state == fresh && j.request.standing != loaded:
				l.c.flights.end(j.fl, j.found(found, mark))
			default:
				j.replaces(found)
				others = append(others, j) // asks again
			}
		default: // held, refused or not answered: loaded and not stored
			j.away = classify(g.err) != nil
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
	l.c.flights.sealAll(unstored) // as in request.run
	loaded, brought, err := l.call(ctx, keys, fill)
	outcomes := make([]outcome, len(jobs))
	for i, j := range jobs {
		value, ok := brought[j.key]
		o := &outcomes[i]
		switch o.started = loaded.started; {
		case err != nil:
			o.err, o.keys = err, keys
		case ok:
			o.value = value
		default:
			o.err, o.negative = ErrNotFound, true
		}
		j.started = loaded.started
	}
	if err == nil {
		l.store(context.WithoutCancel(ctx), jobs, fill, outcomes, loaded.cost)
	}
	l.c.giveBack(ctx, jobs...) // before answering callers, who may request them
	for _, j := range jobs {
		j.lease = ""
	}
	l.c.flights.sealAll(jobs)
	for i, j := range jobs {
		l.c.flights.end(j.fl, outcomes[i])
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
	if !l.c.run.launch(func() { defer close(done); l.c.loaders.run(ctx, fill, one) }) {
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

// store fills Redis and the memory in one pipeline.
func (l *manyLoad) store(ctx context.Context, jobs []*job, fill *Fill, outcomes []outcome, cost time.Duration) {
	c := l.c
	var parcels []parcel
	var whose []int
	for i, j := range jobs {
		if j.lease == "" {
			continue
		}
		p, err := j.pack(ctx, fill, &outcomes[i], cost)
		if err != nil {
			c.counts.failed()
		}
		if p.text != nil {
			parcels, whose = append(parcels, p), append(whose, i)
		}
	}
	if len(parcels) == 0 {
		return
	}
	for i, f := range c.leases.fill(ctx, parcels) {
		j, o := jobs[whose[i]], &outcomes[whose[i]]
		if f.err != nil {
			c.counts.failed()
			continue
		}
		if j.filled(parcels[i], f, o); f.accepted {
			j.lease = ""
		}
	}
}
