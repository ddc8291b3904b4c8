package worker

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// finishSweeps says what comes of requests that were carried out. A reader who had a lease and an old value when the
// request was made may have stored it after the sweep had gone by, which the next sweep finds if it begins when every
// lease of that time has run out. Where the map asks for a hold, since replicas lag for as long, readers find old values
// until it is over, and their leases come on top. A sweep that began as late as that was the settling one.
func (w *engine) finishSweeps(ctx context.Context, m *invalidation.Map, requests []store.Sweep, position keyspace.Position) error {
	lease := w.maps.SettleLease()
	swept := store.Swept{SettleAfter: lease, Position: store.Position(position), MapVersion: m.Version()}
	var again []store.Sweep
	for _, r := range requests {
		if r.Age() < lease+r.Hold() {
			swept.Settling = append(swept.Settling, r)
		} else {
			swept.Finished = append(swept.Finished, r)
		}
		if r.Attempts > 0 {
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		w.log.Info("redis takes sweeps that it had refused", "sweeps", len(again), "kind", again[0].Kind, "name", again[0].Name)
	}
	defer w.metrics.mysql.begin(callSweeps)()
	return w.store.FinishSweeps(ctx, swept)
}

// refusedDelay is the wait after Redis refused a pattern or a set, such as a key that is not a set. Nobody but an
// operator can cure that; the request waits where status shows it.
const refusedDelay = time.Minute

// A refusal is a request that Redis refused, and why.
type refusal struct {
	request store.Sweep
	err     error
}

// postpone makes requests wait. The log tells of those that Redis refuses for the first time, in one line for all of
// them.
func (w *engine) postpone(ctx context.Context, refusals []refusal) error {
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
		w.log.Warn("redis refuses sweeps, which wait and are tried again every minute", "sweeps", len(fresh),
			"kind", first.request.Kind, "name", first.request.Name, "error", first.err)
	}
	defer w.metrics.mysql.begin(callSweeps)()
	return w.store.PostponeSweeps(ctx, list, refusedDelay)
}
