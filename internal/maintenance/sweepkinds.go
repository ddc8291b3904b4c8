package maintenance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// patterns scans the keyspace once for all patterns and publishes them. If Redis refuses a pattern
// or one of its keys, the request is postponed. The others are finished, or kept for their second
// sweep.
func (x *executor) patterns(ctx context.Context, requests []store.Sweep) (done int, err error) {
	var patterns []string
	asked := map[string][]store.Sweep{}
	for _, r := range requests {
		if asked[r.Name] == nil {
			patterns = append(patterns, r.Name)
		}
		asked[r.Name] = append(asked[r.Name], r)
	}
	defer x.measure()()
	x.watch.markRunning(store.SweepProgress{Kind: store.SweepPattern, Patterns: len(patterns)})
	defer x.watch.over(store.SweepPattern)
	show := func(p keyspace.Progress) {
		x.watch.updateProgress(store.SweepPattern, func(progress *store.SweepProgress) {
			progress.Scanned, progress.Total, progress.Unlinked = p.Scanned, p.Total, p.Unlinked
		})
	}
	result, err := x.Redis.Sweep(ctx, patterns, show)
	if err != nil {
		return 0, fmt.Errorf("sweep patterns (%d): %w", len(patterns), err)
	}
	show(result.Progress)
	version := x.Map.Map().Version()
	if _, err := x.Channels.Publish(ctx, keyspace.News{Patterns: patterns}); err != nil {
		return 0, fmt.Errorf("publish patterns: %w", err)
	}
	var swept []store.Sweep
	var refused []refusal
	for _, p := range result.Patterns {
		if p.Err == nil {
			swept = append(swept, asked[p.Pattern]...)
			continue
		}
		for _, r := range asked[p.Pattern] {
			refused = append(refused, refusal{r, p.Err})
		}
	}
	x.metrics.Swept.Add(float64(len(patterns)))
	x.metrics.Keys.Add(float64(result.Unlinked))
	if err := x.postpone(ctx, refused); err != nil {
		return 0, err
	}
	return len(requests), x.finish(ctx, version, swept, result.Position)
}

// someAway reports that some sets met an outage that does not affect the others: their slot is
// moving, or their master is unreachable. They wait while the others continue.
type someAway struct {
	sets  int
	first store.Sweep
	err   error
}

func (e *someAway) Error() string {
	return fmt.Sprintf("index sets wait (%d), the first is %q: %v", e.sets, e.first.Name, e.err)
}

func (e *someAway) Unwrap() error { return e.err }

// withSet counts a set and returns the error that includes it.
func (e *someAway) withSet(r store.Sweep, err error) *someAway {
	if e == nil {
		e = &someAway{first: r, err: err}
	}
	e.sets++
	return e
}

// sets clears a batch of sets: the small ones together, as one batch of the journal, then the large
// ones in sequence. Of two calls under way, one uses Redis at a time. Unless the error ends the
// sweep, it is a *someAway.
func (x *executor) sets(ctx context.Context, requests []store.Sweep) (done int, err error) {
	x.turn.Lock()
	defer x.measure()()
	x.watch.beginSets()
	version := x.Map.Map().Version()
	asked := make([]keyspace.SetRequest, len(requests))
	for i, r := range requests {
		asked[i] = keyspace.SetRequest{Set: r.Name, ID: r.ID}
	}
	taken, err := x.Redis.TakeSets(ctx, asked, x.publishMembers(ctx))
	x.turn.Unlock()
	if err != nil {
		return 0, fmt.Errorf("take index sets (%d): %w", len(requests), err)
	}
	var (
		small, large []store.Sweep
		refused      []refusal
		away         *someAway
	)
	for i, r := range requests {
		set := taken.Sets[i]
		switch {
		case isRefusal(set.Err):
			refused = append(refused, refusal{r, set.Err})
		case set.Err != nil:
			away = away.withSet(r, set.Err)
		case set.Large:
			large = append(large, r)
		default:
			small = append(small, r)
		}
	}
	err = errors.Join(x.postpone(ctx, refused), x.finish(ctx, version, small, taken.Position))
	if err != nil {
		return 0, err
	}
	x.tookSets(len(small))
	done = len(small) + len(refused)
	if len(large) > 0 {
		x.turn.Lock()
		defer x.turn.Unlock()
		defer x.watch.setsInHand(0)
	}
	for i, r := range large {
		x.watch.setsInHand(len(large) - i)
		err := x.clearSet(ctx, version, r)
		switch {
		case err == nil:
			done++
		case IsRedis(err) && ctx.Err() == nil:
			away = away.withSet(r, err)
		default:
			return done, err
		}
	}
	if away != nil {
		return done, away
	}
	return done, nil
}

// clearSet clears one large set.
func (x *executor) clearSet(ctx context.Context, version string, r store.Sweep) error {
	taken, err := x.Redis.TakeSet(ctx, r.Name, r.ID, x.publishMembers(ctx))
	switch {
	case isRefusal(err):
		err = x.postpone(ctx, []refusal{{r, err}})
	case err == nil:
		if err = x.finish(ctx, version, []store.Sweep{r}, taken.Position); err == nil {
			x.tookSets(1)
		}
	}
	return dberr.Wrap(err, fmt.Sprintf("sweep set %q", r.Name))
}

// publishMembers returns a function that publishes deleted members and counts them.
func (x *executor) publishMembers(ctx context.Context) func(members []string) error {
	return func(members []string) error {
		_, err := x.Channels.Publish(ctx, keyspace.News{Keys: members})
		if err == nil {
			n := int64(len(members))
			x.metrics.Keys.Add(float64(n))
			x.watch.updateProgress(store.SweepSet, func(progress *store.SweepProgress) { progress.Unlinked += n })
		}
		return err
	}
}

// tookSets counts sets that were cleared.
func (x *executor) tookSets(sets int) {
	x.metrics.Swept.Add(float64(sets))
	x.watch.updateProgress(store.SweepSet, func(progress *store.SweepProgress) {
		progress.Scanned += int64(sets)
		progress.Total = max(progress.Total, progress.Scanned)
	})
}

// isRefusal reports whether Redis refused a single name.
func isRefusal(err error) bool { return is[*keyspace.Refusal](err) }

// An executor carries out requests.
type executor struct {
	*Sweeper
	watch *sweepWatch
	turn  sync.Mutex // held by the batch of sets that uses Redis
}

// measure measures a scan or a batch, until the caller calls over.
func (x *executor) measure() (over func()) {
	began := time.Now()
	return func() { x.metrics.Seconds.Observe(time.Since(began).Seconds()) }
}

// finish records the result of requests that were carried out. A reader that had a lease and an old
// value at the time of the request may have stored that value after the sweep passed its key. A
// second sweep finds it if it begins after every lease of that time has expired.
//
// If the map sets a hold time, replicas may lag that long, so readers load old values until it has
// elapsed, and their leases add to it. A sweep that began late enough already counts as the second
// sweep.
func (x *executor) finish(ctx context.Context, version string, requests []store.Sweep, position keyspace.Position) error {
	swept := store.Swept{Position: store.Position(position), MapVersion: version}
	var again []store.Sweep
	for _, r := range requests {
		swept.SettleAfter = max(swept.SettleAfter, r.Lease)
		if r.Age() < r.Lease+r.Hold() {
			swept.Settling = append(swept.Settling, r)
		} else {
			swept.Finished = append(swept.Finished, r)
		}
		if r.Attempts > 0 {
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		x.Log.Info("redis takes sweeps that it had refused", "sweeps", len(again), "kind", again[0].Kind, "name", again[0].Name)
	}
	defer x.metrics.Call()()
	return x.Store.Sweeps.FinishSweeps(ctx, swept)
}

// refusedDelay is the wait after Redis refused a pattern or a set, for example a key that is not a
// set. Only an operator can fix that. The request waits, and status shows it.
const refusedDelay = time.Minute

// A refusal is a request that Redis refused, and why.
type refusal struct {
	request store.Sweep
	err     error
}

// postpone delays requests. It logs those that Redis refuses for the first time, in one message.
func (x *executor) postpone(ctx context.Context, refusals []refusal) error {
	var fresh []refusal
	list := make([]store.SweepRefusal, len(refusals))
	for i, r := range refusals {
		list[i] = store.SweepRefusal{ID: r.request.ID, Error: r.err.Error()}
		if r.request.Attempts == 0 {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) > 0 {
		first := fresh[0]
		x.Log.Warn("redis refuses sweeps, which wait and are tried again every minute", "sweeps", len(fresh),
			"kind", first.request.Kind, "name", first.request.Name, "error", first.err)
	}
	defer x.metrics.Call()()
	return x.Store.Sweeps.PostponeSweeps(ctx, list, refusedDelay)
}
