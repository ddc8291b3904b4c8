package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// A manyLoad is what a group loads by itself, in one call of the loader.
type manyLoad struct {
	*group
	jobs    []*job
	fl      *flight // of no key: whoever waits for those of the jobs hurries it
	unasked bool    // see finding
}

func (b *group) newLoad() *manyLoad { return &manyLoad{group: b, fl: alone(flightID{})} }

// start runs the load in a goroutine of its own.
func (l *manyLoad) start(ctx context.Context) {
	if len(l.jobs) > 0 && !l.c.launch(func() { l.run(flightContext{l.c.life, ctx}) }) {
		l.end(l.jobs, outcome{err: ErrClosed})
	}
}

// end gives the outcome to all that wait for the jobs, but for those that have theirs.
func (l *manyLoad) end(jobs []*job, o outcome) {
	l.c.flights.sealAll(jobs)
	for _, j := range jobs {
		l.c.flights.end(j.fl, o)
	}
}

// run loads the values, each under its lease if it can be had. It waits for those that other processes load only where there
// is nothing to load: otherwise whoever else waits for them goes on, and so does the group when its own are loaded.
func (l *manyLoad) run(ctx context.Context) {
	defer l.finish(ctx)
	end := time.Now().Add(l.c.lifeOfLease())
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
			mine, others = append(mine, others...), nil // whoever holds those has had time enough
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

// finish is deferred by run: see job.finish.
func (l *manyLoad) finish(ctx context.Context) {
	failure := recover()
	for _, j := range l.jobs {
		if !j.fl.ended() {
			l.c.flights.end(j.fl, outcome{err: panicked(failure), started: j.started})
		}
	}
	l.c.giveBackAtLast(ctx, l.jobs...)
}

// giveBack releases the leases of jobs that are not used up.
func (l *manyLoad) giveBack(ctx context.Context, jobs []*job) {
	l.c.giveBack(ctx, jobs...)
	for _, j := range jobs {
		j.lease = ""
	}
}

// acquire asks for all leases at once. It ends the flights of what others have stored meanwhile, and returns the jobs to load
// for, with a lease or without, and those that somebody else loads.
func (l *manyLoad) acquire(ctx context.Context, jobs []*job) (mine, others []*job) {
	var asking []*job
	for _, j := range jobs {
		if j.leasable() {
			asking = append(asking, j)
		} else {
			mine = append(mine, j)
		}
	}
	if len(asking) == 0 {
		return mine, nil
	}
	mark := l.c.memory.mark()
	grants := l.c.leases(context.WithoutCancel(ctx), asking) // whose answer tells what there is to give back
	for i, j := range asking {
		switch g := grants[i]; {
		case g.kind == "lease":
			j.granted(g, mark)
			mine = append(mine, j)
		case g.kind == "taken" && j.standing != loaded && !j.enough(g):
			others = append(others, j)
		case g.kind == "value":
			switch found, err := j.judge(ctx, []byte(g.text), g.stamps); {
			case err != nil:
				j.away = classify(err) != nil
				mine = append(mine, j)
			case found.state == foreign:
				mine = append(mine, j)
			case found.state == fresh && j.standing != loaded:
				l.c.flights.end(j.fl, j.found(found, mark))
			default:
				j.useless = found.useless()
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
	fill := &Fill{}
	keys := make([]string, len(jobs))
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
	l.giveBack(ctx, jobs) // before anybody is told, who may ask for them
	l.c.flights.sealAll(jobs)
	for i, j := range jobs {
		l.c.flights.end(j.fl, outcomes[i])
	}
}

// call runs the loader, and leaves it behind after the hard timeout.
func (l *manyLoad) call(ctx context.Context, keys []string, fill *Fill) (loading, map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.config.HardTimeout)
	defer cancel()
	brought, done := map[string]any{}, make(chan struct{})
	j := &job{fl: l.fl, request: &request{c: l.c, key: fmt.Sprintf("%d keys", len(keys)), load: func(ctx context.Context) (any, error) {
		return nil, l.load(ctx, keys, func(key string, value any) { brought[key] = value })
	}}}
	if !l.c.launch(func() { defer close(done); j.call(ctx, fill) }) {
		return loading{}, nil, ErrClosed
	}
	select {
	case <-done:
		if j.started != 0 && (j.err == nil || ctx.Err() == nil) {
			return j.loading, brought, j.err
		}
	case <-ctx.Done():
	}
	return loading{}, nil, l.c.overdue()
}

// store fills Redis and the memory in one pipeline.
func (l *manyLoad) store(ctx context.Context, jobs []*job, fill *Fill, outcomes []outcome, cost time.Duration) {
	c := l.c
	var parcels []parcel
	var whose []*outcome
	for i, j := range jobs {
		if j.lease == "" {
			continue
		}
		p, err := j.pack(ctx, fill, &outcomes[i], cost)
		if err != nil {
			c.counts.failed()
		}
		if p.text != nil {
			parcels, whose = append(parcels, p), append(whose, &outcomes[i])
		}
	}
	if len(parcels) == 0 {
		return
	}
	for i, f := range c.fill(ctx, parcels) {
		switch p := parcels[i]; {
		case f.err != nil:
			c.counts.failed()
		default:
			p.filled(f, whose[i])
			if f.accepted {
				p.job.lease = ""
			}
		}
	}
}
