package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/keyspace"
	"github.com/unstale/unstale/outbox"
)

// sweepLimit is how many requests one pass carries out.
const sweepLimit = 10_000

// sweepLoop carries out the sweeps that passes requested, in passes of its own, outside any claim: at once
// when this worker requested some, and once a second for those of others.
func (w *Worker) sweepLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	outages := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.sweepNow:
		}
		if w.resting.Load() {
			timer.Reset(jitter(tickInterval/4, 0.1))
			continue
		}
		n, err := w.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPaused): // not a fault
			timer.Reset(tickInterval)
			continue
		case isLoss(err):
			w.lossSeen.Store(true)
			notify(w.wake)
			timer.Reset(0) // the pass begins anew
			continue
		case err != nil:
			outages++
			w.health.sweepFailed(err)
			timer.Reset(outagePause(err, outages))
			continue
		case n > 0:
			timer.Reset(0)
		default:
			timer.Reset(jitter(tickInterval, 0.1))
		}
		outages = 0
		w.health.sweepDone()
	}
}

// errPaused ends sweeps that an operator's pause finds under way. Their requests wait.
var errPaused = errors.New("all workers are paused")

// sweep takes the requests that wait and carries them out together: the sets, then one pass over the keyspace for all
// patterns, which takes longer. It returns how many it carried out; 0 also when another worker is at it. A request that
// arrives meanwhile waits for the next pass, because one made after a key was passed must see it again.
func (w *Worker) sweep(ctx context.Context) (done int, err error) {
	waiting, err := w.store.Sweeps(ctx, 1)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	lead, err := w.store.TryLead(ctx) // one worker sweeps at a time
	if err != nil || lead == nil {
		return 0, err
	}
	defer lead.Drop()
	requests, err := w.store.Sweeps(ctx, sweepLimit)
	if err != nil || len(requests) == 0 {
		return 0, err
	}
	began := time.Now()
	watch := w.watchSweep(ctx, lead)
	sets, err := w.sweepSets(watch.ctx, requests)
	if err == nil || !isLoss(err) && watch.ctx.Err() == nil { // an outage of one shard concerns its sets
		patterns, also := w.sweepPatterns(watch.ctx, watch, requests)
		done, err = patterns, errors.Join(err, also)
	}
	if cause := watch.end(); cause != nil {
		err = cause
	}
	w.metrics.sweepSeconds.Observe(time.Since(began).Seconds())
	return sets + done, err
}

// sweepPatterns makes one pass for all patterns and publishes them. A request whose pattern Redis refuses, or
// one of whose keys it refuses, waits; the others are finished, or kept for their settling pass.
func (w *Worker) sweepPatterns(ctx context.Context, watch *sweepWatch, requests []outbox.Sweep) (done int, err error) {
	var patterns []string
	asked := map[string][]outbox.Sweep{}
	for _, r := range requests {
		if r.Kind != outbox.SweepPattern {
			continue
		}
		if asked[r.Name] == nil {
			patterns = append(patterns, r.Name)
		}
		asked[r.Name] = append(asked[r.Name], r)
		done++
	}
	if len(patterns) == 0 {
		return 0, nil
	}
	watch.begin(len(patterns))
	result, err := w.redis.Sweep(ctx, patterns, watch.note)
	if err != nil {
		return 0, fmt.Errorf("sweep %d patterns: %w", len(patterns), err)
	}
	watch.over(result)
	m := w.maps.Map()
	if _, err := w.redis.Publish(ctx, m.Channel(), m.Format(), nil, patterns); err != nil {
		return 0, fmt.Errorf("publish patterns: %w", err)
	}
	var swept []outbox.Sweep
	for _, p := range result.Patterns {
		if p.Err == nil {
			swept = append(swept, asked[p.Pattern]...)
			continue
		}
		for _, r := range asked[p.Pattern] {
			if err := w.putOff(ctx, r.ID, p.Pattern, p.Err); err != nil {
				return 0, err
			}
		}
	}
	w.metrics.swept(len(patterns), result.Unlinked)
	return done, w.finishSweeps(ctx, m, swept, result.Beat)
}

// finishSweeps says what comes of requests that were carried out. A reader who had a lease and an old value when the
// request was made may have stored it behind the pass' back, which the next pass finds if it begins when every lease
// of that time has run out. A pass that began as late as that was the settling one.
func (w *Worker) finishSweeps(ctx context.Context, m *invalidation.Map, requests []outbox.Sweep, beat keyspace.Beat) error {
	swept := outbox.Swept{SettleAfter: m.Lease(), Beat: outbox.Beat(beat), MapVersion: m.Version()}
	for _, r := range requests {
		if r.Age() < m.Lease() {
			swept.Settling = append(swept.Settling, r)
		} else {
			swept.Finished = append(swept.Finished, r)
		}
	}
	return w.store.FinishSweeps(ctx, swept)
}

// refusedDelay is the wait after Redis refused a pattern or a set, such as a key that is not a set. Nobody but an
// operator can cure that; the request waits where status shows it.
const refusedDelay = time.Minute

func (w *Worker) putOff(ctx context.Context, id uint64, name string, refusal error) error {
	w.log.Error("redis refuses a sweep; it is tried again in a minute", "name", name, "error", refusal)
	return w.store.PutOffSweep(ctx, id, refusedDelay, refusal.Error())
}

// mostAway is how many sets in a row may meet an outage before it counts as one of all Redis.
const mostAway = 3

// sweepSets takes sets apart, one after the other. An outage that one of them meets, in a slot that is moving for example,
// keeps that one waiting and no other.
func (w *Worker) sweepSets(ctx context.Context, requests []outbox.Sweep) (done int, err error) {
	var met error
	away := 0
	for _, r := range requests {
		if r.Kind != outbox.SweepSet {
			continue
		}
		err := w.sweepSet(ctx, r)
		switch {
		case err == nil:
			done, away = done+1, 0
			continue
		case ctx.Err() != nil || !isOutage(err):
			return done, err
		}
		met = err
		if away++; away == mostAway {
			return done, met
		}
	}
	return done, met
}

func (w *Worker) sweepSet(ctx context.Context, r outbox.Sweep) error {
	m := w.maps.Map()
	publish := func(keys []string) error {
		_, err := w.redis.Publish(ctx, m.Channel(), m.Format(), keys, nil)
		return err
	}
	taken, err := w.redis.TakeSet(ctx, r.Name, r.ID, publish)
	var refusal *keyspace.Refusal
	switch {
	case errors.As(err, &refusal):
		err = w.putOff(ctx, r.ID, r.Name, refusal)
	case err == nil:
		w.metrics.swept(1, taken.Members)
		err = w.finishSweeps(ctx, m, []outbox.Sweep{r}, taken.Beat)
	}
	if err != nil {
		return fmt.Errorf("sweep set %q: %w", r.Name, err)
	}
	return nil
}
