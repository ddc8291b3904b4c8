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
	healInterval = 5 * time.Second       // between two looks at all epochs
	healPause    = 50 * time.Millisecond // while other workers heal what is left
	healProgress = 5 * time.Second       // between two lines in the log
)

// heal compares the journal with Redis' beacons, of all workers that the journal knows, and unlinks again what Redis
// has lost. When it returns nil, Redis has everything that was settled before the call. What a worker settles meanwhile
// has a position of its own, and is judged by the next call.
//
// Each batch that was healed becomes one of this worker's epoch, in the transaction that holds it: workers share the
// work, and one that dies on the way leaves the rest.
func (w *engine) heal(ctx context.Context) error {
	p := &w.progress // of the whole healing, over the outages in it
	for {
		losses, epoch, err := w.losses(ctx)
		if err != nil {
			return err
		}
		if len(losses) == 0 {
			w.pulse.heal(epoch)
			p.over(w)
			return nil
		}
		w.pulse.stop(errHealing)
		p.begin(w)
		busy := true
		for _, survived := range losses {
			healed, err := w.healEpoch(ctx, survived, p)
			if err != nil {
				return err
			}
			busy = busy && !healed
		}
		if busy { // others hold what is left
			if err := sleep.For(ctx, healPause); err != nil {
				return err
			}
		}
	}
}

// losses lists, for each epoch of which Redis has lost something, the last position that it still has, and the epoch of
// the beacon while it looked. Epochs of a Redis without data have lost nothing that could be stale: their batches are
// adopted.
func (w *engine) losses(ctx context.Context) (losses []store.Position, epoch string, err error) {
	now, err := w.redis.CheckBeacon(ctx)
	if err != nil || now == (keyspace.Position{}) {
		return nil, "", err
	}
	list := w.positions.recent
	if w.positions.isBusy(now.Epoch, now.N) {
		list = w.positions.all
	}
	losses, emptied, err := w.compare(ctx, list)
	if err == nil && len(losses)+len(emptied) > 0 { // the whole truth
		losses, emptied, err = w.compare(ctx, w.positions.all)
	}
	if err != nil || len(emptied) == 0 {
		return losses, now.Epoch, err
	}
	// Written after the comparison: should Redis find older data again, this position will be missing.
	if now, err = w.redis.CheckBeacon(ctx); err != nil {
		return nil, "", err
	}
	for _, epoch := range emptied {
		n, err := w.store.Adopt(ctx, epoch, store.Position(now))
		if err != nil {
			return nil, "", err
		}
		w.positions.forget(epoch)
		w.log.Debug("redis holds no data, so nothing is stale", "epoch", epoch, "batches", n)
	}
	w.log.Info("redis holds no data, so nothing is stale", "epochs", len(emptied))
	return losses, now.Epoch, nil
}

// compare asks Redis how much it has of each epoch that list lists.
func (w *engine) compare(ctx context.Context, list func(context.Context, *store.Store) (map[string]uint64, error)) (losses []store.Position, emptied []string, err error) {
	last, err := list(ctx, w.store)
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
			losses = append(losses, store.Position{Epoch: epoch, N: n})
		}
	}
	return losses, emptied, nil
}

// healEpoch unlinks the batches after a position again, as far as nobody else does, and reports whether there were any.
func (w *engine) healEpoch(ctx context.Context, after store.Position, p *healLog) (some bool, err error) {
	for {
		if ctx.Err() != nil {
			return some, ctx.Err()
		}
		n, err := w.healOnce(ctx, after, p)
		if n == 0 || err != nil {
			return some, err
		}
		some = true
	}
}

// healOnce heals one claim of batches, and finishes it even when ctx ends.
func (w *engine) healOnce(ctx context.Context, after store.Position, p *healLog) (batches int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.batchLimit)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil { // it took too long
			w.healSize.halve()
		}
	}()
	r, err := w.store.ClaimHeal(ctx, after, w.healSize.now)
	if r == nil || err != nil {
		return 0, err
	}
	done, keys, err := w.unlinkAgain(ctx, r)
	if err == nil {
		err = r.Settle(ctx, store.Position(done.Position), done.Born)
	} else {
		err = errors.Join(err, r.Release())
	}
	if err != nil {
		return 0, err
	}
	w.healSize.grow()
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
	var targets []keyspace.Target
	var keys []string
	seen := map[string]int{} // in targets
	for _, b := range r.Batches {
		for i := range b.Entries {
			for _, key := range b.Entries[i].Keys {
				if _, known := seen[key]; !known {
					seen[key] = len(targets)
					keys, targets = append(keys, key), append(targets, keyspace.Target{Key: key})
				}
				t := &targets[seen[key]]
				t.Hold = max(t.Hold, b.Entries[i].Hold())
			}
		}
	}
	if done, err = w.redis.Unlink(ctx, targets); err != nil {
		return done, 0, fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if isOutage(f.Err) { // of the shard that has the key, which cannot be left out
			return done, 0, fmt.Errorf("unlink keys again: %w", f.Err)
		}
		// Its row was settled once, so the right was taken away since.
		w.log.Error("redis refuses a key while healing; it may be stale", "error", f.Err)
	}
	if len(targets) == 0 {
		if done.Position, err = w.redis.CheckBeacon(ctx); err != nil {
			return done, 0, err
		}
	}
	if _, err := w.publish(ctx, keys, nil); err != nil {
		return done, 0, fmt.Errorf("publish keys again: %w", err)
	}
	return done, len(keys), nil
}

// A healLog reports on healing, in the log and in the metrics.
type healLog struct {
	began, said   time.Time
	batches, keys int
	noticed       bool // the log says that something may be missing
}

func (p *healLog) begin(w *engine) {
	if !p.began.IsZero() {
		return
	}
	p.began, p.said = time.Now(), time.Now()
	w.metrics.heals.Inc()
	w.log.Warn("redis lost unlinks that it had acknowledged; healing from the journal before another row is settled")
}

func (p *healLog) did(w *engine, batches, keys int) {
	p.batches, p.keys = p.batches+batches, p.keys+keys
	w.metrics.healedBatches.Add(float64(batches))
	w.metrics.healedKeys.Add(float64(keys))
	w.health.turn()
	if time.Since(p.said) >= healProgress {
		p.said = time.Now()
		w.log.Info("healing", "batches", p.batches, "keys", p.keys)
	}
}

func (p *healLog) over(w *engine) {
	defer func() { *p = healLog{} }()
	switch {
	case p.began.IsZero() && p.noticed:
		w.log.Info("compared with the journal: redis has everything that was settled")
	case !p.began.IsZero():
		w.log.Info("healed: redis has everything again", "batches", p.batches, "keys", p.keys,
			"took", time.Since(p.began).Round(time.Millisecond).String())
	}
}
