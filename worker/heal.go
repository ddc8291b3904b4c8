package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

const (
	healInterval = 5 * time.Second        // between two looks at all epochs
	healSlice    = 100 * time.Millisecond // of healing, before new rows have their turn
	firstHeal    = 25                     // batches of the first claim, which must not take longer than that
	healPause    = 50 * time.Millisecond  // while other workers heal what is left
	healProgress = 5 * time.Second        // between two lines in the log
)

// A healing is how far a slice of it has come.
type healing uint8

const (
	healed     healing = iota // Redis has everything that was settled before the slice
	healGoesOn                // some was healed, and there may be more
	healShared                // others hold what is left
)

// healAll heals until Redis has everything that was settled before the call.
func (w *engine) healAll(ctx context.Context) error {
	for {
		state, err := w.heal(ctx)
		if err != nil || state == healed {
			return err
		}
		if state == healShared {
			if err := sleep.For(ctx, healPause); err != nil {
				return err
			}
		}
	}
}

// heal compares the journal with Redis' beacons, of all workers that the journal knows, and unlinks again what Redis
// has lost, for about healSlice: where that is the whole journal, new rows must not wait for it. They need not, since
// what is settled meanwhile has a position of its own, after the loss, and is judged by the next comparison.
//
// Each batch that was healed becomes one of this worker's epoch, in the transaction that holds it: workers share the
// work, and one that dies on the way leaves the rest.
func (w *engine) heal(ctx context.Context) (healing, error) {
	p := &w.progress // of the whole healing, over the outages in it
	if len(p.left) == 0 {
		losses, epoch, err := w.losses(ctx)
		if err != nil {
			return healGoesOn, err
		}
		if len(losses) == 0 {
			w.pulse.heal(epoch)
			p.over(w)
			return healed, nil
		}
		w.pulse.stop(errHealing)
		if slices.ContainsFunc(losses, func(l loss) bool { return !l.isAdopted() }) {
			p.begin(w)
		}
		p.left, p.found, p.expected = losses, false, 0
		for _, l := range losses {
			p.expected += l.batches
		}
		w.metrics.healingLeft.Set(float64(p.expected))
	}
	for end := time.Now().Add(healSlice); len(p.left) > 0; {
		over, err := w.healEpoch(ctx, p.left[0], end, p)
		if err != nil { // which may be that of one shard: the others go first the next time
			p.left = append(p.left[1:], p.left[0])
			return healGoesOn, err
		}
		if !over {
			return healGoesOn, nil
		}
		p.left = p.left[1:]
	}
	if p.found {
		return healGoesOn, nil // to the next comparison
	}
	return healShared, nil
}

// A loss is what has to be done about an epoch that Redis does not have up to its last position in the journal.
type loss struct {
	store.Position // the last that Redis still has
	// adopt is where Redis has no data, so that nothing of the epoch can be stale: its batches become those of this
	// position, which Redis has.
	adopt store.Position
	// batches are how many it is about, at most.
	batches uint64
}

func (l loss) isAdopted() bool { return l.adopt != store.Position{} }

// losses lists what Redis has lost, and the epoch of the beacon while it looked.
func (w *engine) losses(ctx context.Context) (losses []loss, epoch string, err error) {
	now, err := w.redis.CheckBeacon(ctx)
	if err != nil || now == (keyspace.Position{}) {
		return nil, "", err
	}
	list := w.positions.recent
	if w.positions.isBusy(now.Epoch, now.N) {
		list = w.positions.all
	}
	lost, emptied, err := w.compare(ctx, list)
	if err == nil && len(lost)+len(emptied) > 0 { // the whole truth
		lost, emptied, err = w.compare(ctx, w.positions.all)
	}
	if err != nil {
		return nil, "", err
	}
	losses = lost
	if len(emptied) == 0 {
		return losses, now.Epoch, nil
	}
	// Written after the comparison: should Redis find older data again, this position will be missing.
	after, err := w.redis.CheckBeacon(ctx)
	if err != nil {
		return nil, "", err
	}
	if after.Epoch != now.Epoch { // it has, and the heartbeat was told
		return nil, "", &keyspace.Loss{Position: now}
	}
	for _, epoch := range emptied {
		losses = append(losses, loss{Position: store.Position{Epoch: epoch}, adopt: store.Position(after)})
	}
	w.log.Info("redis holds no data, so nothing is stale", "epochs", len(emptied))
	return losses, now.Epoch, nil
}

// compare asks Redis how much it has of each epoch that list lists.
func (w *engine) compare(ctx context.Context, list func(context.Context, *store.Store) (map[string]uint64, error)) (losses []loss, emptied []string, err error) {
	listed := w.metrics.mysql.begin(callPositions)
	last, err := list(ctx, w.store)
	listed()
	if err != nil {
		return nil, nil, err
	}
	survived, err := w.redis.Survived(ctx, slices.Collect(maps.Keys(last)))
	if err != nil {
		return nil, nil, err
	}
	for epoch, position := range last {
		switch n := survived[epoch]; {
		case n == keyspace.Everything:
			emptied = append(emptied, epoch)
		case n < position:
			losses = append(losses, loss{Position: store.Position{Epoch: epoch, N: n}, batches: position - n})
		}
	}
	if len(losses)+len(emptied) == 0 {
		err = w.redis.ConfirmMoved(ctx, last)
	}
	return losses, emptied, err
}

// healEpoch heals or adopts the batches of an epoch until the time is over. over says that there are none that nobody else
// has in hand.
func (w *engine) healEpoch(ctx context.Context, lost loss, end time.Time, p *healLog) (over bool, err error) {
	for time.Now().Before(end) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		n, err := w.healOnce(ctx, lost, p)
		if n == 0 || err != nil {
			return n == 0, err
		}
		p.found = true
	}
	return false, nil
}

// healOnce heals or adopts one claim of batches, and finishes it even when ctx ends.
func (w *engine) healOnce(ctx context.Context, lost loss, p *healLog) (batches int, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.batchLimit)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil { // it took too long
			w.healSize.halve()
		}
	}()
	defer func() {
		switch {
		case err != nil || batches == 0:
		case time.Since(began) > healSlice:
			w.healSize.halve()
		default:
			w.healSize.grow()
		}
	}()
	if lost.isAdopted() {
		defer w.metrics.mysql.begin(callHeal)()
		return w.store.Adopt(ctx, lost.Epoch, lost.adopt, w.healSize.now)
	}
	claimed := w.metrics.mysql.begin(callHeal)
	r, err := w.store.ClaimHeal(ctx, lost.Position, w.healSize.now)
	claimed()
	if r == nil || err != nil {
		return 0, err
	}
	done, keys, err := w.unlinkAgain(ctx, r)
	if err == nil {
		settled := w.metrics.mysql.begin(callHeal)
		err = r.Settle(ctx, store.Position(done.Position), done.Born)
		settled()
	} else {
		err = errors.Join(err, r.Release())
	}
	if err != nil {
		return 0, err
	}
	p.did(w, len(r.Batches), keys)
	for _, b := range r.Damaged {
		w.log.Error("a batch of the journal cannot be read, so it is not healed: what it unlinked may be stale until its TTL; "+
			"it is set aside, the others are healed", "batch", b.ID, "rows", b.Rows, "settled_at", b.SettledAt, "worker", b.Worker,
			"error", b.Err, "cure", "invalidate again what was written at about that time, see 'unstale status'")
	}
	return len(r.Batches) + len(r.Damaged), nil
}

// unlinkAgain unlinks and publishes the keys of batches, and holds them again, as long as at first: nobody knows how much
// of the tombstones Redis has lost. Batches without keys get a position of their own.
func (w *engine) unlinkAgain(ctx context.Context, r *store.HealClaim) (done keyspace.Unlinked, n int, err error) {
	var set keyspace.TargetSet
	var keys []string
	for _, b := range r.Batches {
		for i := range b.Entries {
			for _, key := range b.Entries[i].Keys {
				if _, added := set.Add(key, b.Entries[i].Hold()); added {
					keys = append(keys, key)
				}
			}
		}
	}
	if done, err = w.redis.Unlink(ctx, set.Targets); err != nil {
		return done, 0, fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if isOutage(f.Err) { // of the shard that has the key, which cannot be left out
			return done, 0, fmt.Errorf("unlink keys again: %w", f.Err)
		}
		// Its row was settled once, so the right was taken away since.
		w.log.Error("redis refuses a key while healing; it may be stale", "error", f.Err)
	}
	if len(keys) == 0 {
		if done.Position, err = w.redis.CheckBeacon(ctx); err != nil {
			return done, 0, err
		}
	}
	if _, err := w.publish(ctx, keyspace.News{Keys: keys, Unlinked: done.Born}); err != nil {
		return done, 0, fmt.Errorf("publish keys again: %w", err)
	}
	return done, len(keys), nil
}

// A healLog is how far a healing has come, for the next slice, the log and the metrics.
type healLog struct {
	// left are the losses of the last comparison that are not healed. What was settled since is not among them, and
	// another loss ends them all.
	left  []loss
	found bool // this worker has healed some of them
	// expected are the batches that are left of them, at most.
	expected uint64

	began, said   time.Time
	batches, keys int
	noticed       bool // the log says that something may be missing
}

// lost notes another loss.
func (p *healLog) lost() { p.noticed, p.left = true, nil }

func (p *healLog) begin(w *engine) {
	if !p.began.IsZero() {
		return
	}
	p.began, p.said = time.Now(), time.Now()
	w.metrics.heals.Inc()
	w.metrics.healing.Set(1)
	w.log.Warn("redis lost unlinks that it had acknowledged; healing from the journal; new rows are handled in between")
}

func (p *healLog) did(w *engine, batches, keys int) {
	p.batches, p.keys = p.batches+batches, p.keys+keys
	w.metrics.healedBatches.Add(float64(batches))
	w.metrics.healedKeys.Add(float64(keys))
	p.expected -= min(p.expected, uint64(batches))
	w.metrics.healingLeft.Set(float64(p.expected))
	w.health.turn()
	if time.Since(p.said) >= healProgress {
		p.said = time.Now()
		w.log.Info("healing", "batches", p.batches, "keys", p.keys)
	}
}

func (p *healLog) over(w *engine) {
	defer func() { *p = healLog{} }()
	w.metrics.healing.Set(0)
	w.metrics.healingLeft.Set(0)
	switch {
	case p.began.IsZero() && p.noticed:
		w.log.Info("compared with the journal: redis has everything that was settled")
	case !p.began.IsZero():
		w.log.Info("healed: redis has everything again", "batches", p.batches, "keys", p.keys,
			"took", time.Since(p.began).Round(time.Millisecond).String())
	}
}
