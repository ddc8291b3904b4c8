package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/keyspace"
	"github.com/unstale/unstale/outbox"
)

const (
	sweeperRole = "sweeper" // one worker sweeps at a time
	sweepLimit  = 10_000    // requests a pass
)

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
		case isLoss(err):
			w.lossSeen.Store(true)
			notify(w.wake)
			timer.Reset(0) // the pass begins anew
			continue
		case err != nil:
			outages++
			w.health.sweepFailed(err)
			timer.Reset(outagePause(outages))
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

// sweep takes the requests that wait and carries them out together: one pass over the keyspace for all
// patterns, then the sets. It returns how many it finished; 0 also when another worker is at it. A request that
// arrives meanwhile waits for the next pass, because one made after a key was passed must see it again.
func (w *Worker) sweep(ctx context.Context) (done int, err error) {
	waiting, err := w.store.Sweeps(ctx, 1)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	lead, err := w.store.TryLead(ctx, sweeperRole)
	if err != nil || lead == nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lead.Drop(context.WithoutCancel(ctx))) }()
	requests, err := w.store.Sweeps(ctx, sweepLimit)
	if err != nil || len(requests) == 0 {
		return 0, err
	}
	began := time.Now()
	patterns, err := w.sweepPatterns(ctx, requests)
	if err != nil {
		return 0, err
	}
	sets, err := w.sweepSets(ctx, requests)
	w.metrics.sweepSeconds.Observe(time.Since(began).Seconds())
	return patterns + sets, err
}

// sweepPatterns makes one pass for all patterns and publishes them. A request whose pattern Redis refuses, or
// one of whose keys it refuses, waits; the others are finished.
func (w *Worker) sweepPatterns(ctx context.Context, requests []outbox.Sweep) (done int, err error) {
	var patterns []string
	ids := map[string][]uint64{}
	for _, r := range requests {
		if r.Kind != outbox.SweepPattern {
			continue
		}
		if ids[r.Name] == nil {
			patterns = append(patterns, r.Name)
		}
		ids[r.Name] = append(ids[r.Name], r.ID)
		done++
	}
	if len(patterns) == 0 {
		return 0, nil
	}
	result, err := w.redis.Sweep(ctx, patterns, nil)
	if err != nil {
		return 0, fmt.Errorf("sweep %d patterns: %w", len(patterns), err)
	}
	m := w.maps.Map()
	if _, err := w.redis.Publish(ctx, m.Channel(), m.Format(), nil, patterns); err != nil {
		return 0, fmt.Errorf("publish patterns: %w", err)
	}
	var finished []outbox.Sweep
	for _, p := range result.Patterns {
		if p.Err == nil {
			for _, id := range ids[p.Pattern] {
				finished = append(finished, outbox.Sweep{ID: id, Kind: outbox.SweepPattern, Name: p.Pattern})
			}
			continue
		}
		for _, id := range ids[p.Pattern] {
			if err := w.putOff(ctx, id, p.Pattern, p.Err); err != nil {
				return 0, err
			}
		}
	}
	w.metrics.swept(len(patterns), result.Unlinked)
	return done, w.store.FinishSweeps(ctx, finished, outbox.Beat(result.Beat), m.Version())
}

// refusedDelay is the wait after Redis refused a pattern or a set, such as a key that is not a set. Nobody but an
// operator can cure that; the request waits where status shows it.
const refusedDelay = time.Minute

func (w *Worker) putOff(ctx context.Context, id uint64, name string, refusal error) error {
	w.log.Error("redis refuses a sweep; it is tried again in a minute", "name", name, "error", refusal)
	return w.store.PutOffSweep(ctx, id, refusedDelay, refusal.Error())
}

func (w *Worker) sweepSets(ctx context.Context, requests []outbox.Sweep) (done int, err error) {
	m := w.maps.Map()
	publish := func(keys []string) error {
		_, err := w.redis.Publish(ctx, m.Channel(), m.Format(), keys, nil)
		return err
	}
	for _, r := range requests {
		if r.Kind != outbox.SweepSet {
			continue
		}
		taken, err := w.redis.TakeSet(ctx, r.Name, r.ID, publish)
		var refusal *keyspace.Refusal
		switch {
		case errors.As(err, &refusal):
			err = w.putOff(ctx, r.ID, r.Name, refusal)
		case err == nil:
			w.metrics.swept(1, taken.Members)
			err = w.store.FinishSweeps(ctx, []outbox.Sweep{r}, outbox.Beat(taken.Beat), m.Version())
		}
		if err != nil {
			return done, fmt.Errorf("sweep set %q: %w", r.Name, err)
		}
		done++
	}
	return done, nil
}
