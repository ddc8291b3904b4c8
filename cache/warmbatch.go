package cache

import (
	"context"
	"time"
)

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
	b.begin()
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
			b.note(key, got{source: FromMemory}, err)
		case r.standing == loaded:
			b.single = append(b.single, r)
		default:
			asked = append(asked, r)
		}
	}
	if len(asked) == 0 {
		return true
	}
	mark := b.c.memory.mark()
	readings, err := (&group{c: b.c, requests: asked}).read(b.call)
	if err != nil {
		b.single = append(b.single, asked...)
		return false
	}
	for i, r := range asked {
		switch found := readings[i]; {
		case found.state == fresh && found.entry.Negative != 0:
			b.c.counts.read(fresh)
			b.note(r.key, got{source: FromRedis}, ErrNotFound)
		case found.state == fresh && !found.early:
			b.c.counts.read(fresh)
			r.keep(found, mark)
			b.note(r.key, got{source: FromRedis}, nil)
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
			b.c.counts.read(absent)
			b.note(j.key, got{source: FromRedis}, j.fl.outcome.err)
		case j.lease != "":
			leased = append(leased, j)
		case j.unread && j.away: // no answer twice
			b.c.flights.end(j.fl, nothing)
			b.note(j.key, got{}, ErrRedisTimeout)
		default:
			b.c.flights.end(j.fl, nothing)
			b.single = append(b.single, j.request)
		}
	}
	b.jobs = leased
}

// begin begins loads, each at its turn, until turnWait has passed, a loader waits for one of the
// keys, or the warming stops.
func (b *warmBatch) begin() {
	late := time.NewTimer(turnWait)
	defer late.Stop()
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
		case <-late.C:
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
		b.c.flights.end(j.fl, nothing)
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
		w.c.counts.read(absent)
		w.note(j.key, got{source: FromLoader, stored: j.fl.outcome.accepted}, j.fl.outcome.err)
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
		w.note(r.key, g, err)
	})
}
