package maintenance

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// An executor carries out requests.
type executor struct {
	cfg   *SweepConfig
	watch *sweepWatch
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
		x.cfg.Log.Info("redis takes sweeps that it had refused", "sweeps", len(again), "kind", again[0].Kind, "name", again[0].Name)
	}
	defer x.cfg.Metrics.Call()()
	return x.cfg.Requests.FinishSweeps(ctx, swept)
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
		x.cfg.Log.Warn("redis refuses sweeps, which wait and are tried again every minute", "sweeps", len(fresh),
			"kind", first.request.Kind, "name", first.request.Name, "error", first.err)
	}
	defer x.cfg.Metrics.Call()()
	return x.cfg.Requests.PostponeSweeps(ctx, list, refusedDelay)
}
