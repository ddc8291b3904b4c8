package maintenance

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

// A State reports how far a slice of healing has come.
type HealState uint8

const (
	Healed HealState = iota // HealRedis has everything that was settled before the slice
	GoesOn                  // some was healed, and there may be more
	Shared                  // others hold what is left
)

// A Healer heals Redis. One goroutine owns it.
type Healer struct {
	cfg       HealConfig
	size      *BatchSize     // of the next claim of journalled batches
	positions knownPositions // per the journal, which Redis must have
	progress  progress
}

// NewHealer returns a Healer. A run before this one may have left the metrics as they were.
func NewHealer(cfg HealConfig) *Healer {
	cfg.Metrics.Over()
	return &Healer{cfg: cfg, size: BatchSizeFrom(firstClaim, store.MaxHeal)}
}

// Lost drops what is left to heal of earlier losses. The next comparison finds all current losses.
func (h *Healer) Lost() { h.progress.lost() }

// All heals until Redis has everything that was settled before the call.
func (h *Healer) All(ctx context.Context) error {
	for {
		state, err := h.Some(ctx)
		if err != nil || state == Healed {
			return err
		}
		if state == Shared {
			if err := sleep.For(ctx, HealPause); err != nil {
				return err
			}
		}
	}
}

// Some heals for about Slice: it compares the journal with Redis's beacons, of all workers in the
// journal, and repeats the unlinks that Redis has lost. Even if that is the whole journal, new rows
// do not wait for it. They do not need to: rows settled meanwhile have positions after the loss,
// and the next comparison covers them.
//
// Each healed batch moves to this worker's epoch, in the transaction that locks the batch. Workers
// therefore share the work, and if one crashes, the others heal the rest.
func (h *Healer) Some(ctx context.Context) (HealState, error) {
	p := &h.progress // of the whole healing, over the outages in it
	if len(p.left) == 0 {
		losses, epoch, err := h.losses(ctx)
		if err != nil {
			return GoesOn, err
		}
		if len(losses) == 0 {
			h.cfg.Healed(epoch)
			p.over(&h.cfg)
			return Healed, nil
		}
		p.lose = slices.ContainsFunc(losses, func(l loss) bool { return !l.isAdopted() })
		if p.lose {
			p.begin(&h.cfg)
		}
		p.left, p.found, p.expected = losses, false, 0
		for _, l := range losses {
			p.expected += l.batches
		}
		h.cfg.Metrics.Left(p.expected)
	}
	h.cfg.Healing(p.lose)
	for end := time.Now().Add(Slice); len(p.left) > 0; {
		over, err := h.epoch(ctx, p.left[0], end)
		if err != nil { // which may be that of one shard: the others go first the next time
			p.left = append(p.left[1:], p.left[0])
			return GoesOn, err
		}
		if !over {
			return GoesOn, nil
		}
		p.left = p.left[1:]
	}
	if p.found {
		return GoesOn, nil // to the next comparison
	}
	return Shared, nil
}

// losses returns the losses of Redis, and the epoch of the beacon during the comparison.
func (h *Healer) losses(ctx context.Context) (losses []loss, epoch string, err error) {
	now, err := h.cfg.Redis.CheckBeacon(ctx)
	if err != nil || now == (keyspace.Position{}) {
		return nil, "", err
	}
	list := h.positions.recent
	if h.positions.isBusy(now.Epoch, now.N) {
		list = h.positions.all
	}
	lost, emptied, err := h.compare(ctx, list)
	if err == nil && len(lost)+len(emptied) > 0 { // the whole truth
		lost, emptied, err = h.compare(ctx, h.positions.all)
	}
	if err != nil {
		return nil, "", err
	}
	losses = lost
	if len(emptied) == 0 {
		return losses, now.Epoch, nil
	}
	// Written after the comparison: if Redis is restored to older data again, this position is
	// missing.
	after, err := h.cfg.Redis.CheckBeacon(ctx)
	if err != nil {
		return nil, "", err
	}
	if after.Epoch != now.Epoch { // it has, and the heartbeat was told
		return nil, "", &keyspace.Loss{Position: now}
	}
	for _, epoch := range emptied {
		losses = append(losses, loss{Position: store.Position{Epoch: epoch}, adopt: store.Position(after), batches: h.positions.last[epoch]})
	}
	h.cfg.Log.Info("redis holds no data, so nothing is stale", "epochs", len(emptied))
	return losses, now.Epoch, nil
}

// compare asks Redis for the position that it has of each listed epoch.
func (h *Healer) compare(ctx context.Context, list func(context.Context, *store.Journal) (map[string]uint64, error)) (losses []loss, emptied []string, err error) {
	listed := h.cfg.Metrics.Positions()
	last, err := list(ctx, h.cfg.Journal)
	listed()
	if err != nil {
		return nil, nil, err
	}
	survived, err := h.cfg.Redis.Survived(ctx, slices.Collect(maps.Keys(last)))
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
		err = h.cfg.Redis.ConfirmMoved(ctx, last)
	}
	return losses, emptied, err
}

// epoch heals or adopts the batches of an epoch until end. It reports over once no batches are left
// except those that other workers have claimed.
func (h *Healer) epoch(ctx context.Context, lost loss, end time.Time) (over bool, err error) {
	for time.Now().Before(end) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		n, err := h.once(ctx, lost)
		if n == 0 || err != nil {
			return n == 0, err
		}
		h.progress.found = true
	}
	return false, nil
}

// once heals or adopts one claim of batches, and finishes it even if ctx ends.
func (h *Healer) once(ctx context.Context, lost loss) (batches int, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.Limit)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil { // it took too long
			h.size.Halve()
		}
	}()
	defer func() {
		switch {
		case err != nil || batches == 0:
		case time.Since(began) > Slice:
			h.size.Halve()
		default:
			h.size.Grow()
		}
	}()
	if lost.isAdopted() {
		defer h.cfg.Metrics.Call()()
		batches, err = h.cfg.Journal.Adopt(ctx, lost.Epoch, lost.adopt, h.size.Now())
		h.progress.less(&h.cfg, batches)
		return batches, err
	}
	claimed := h.cfg.Metrics.Call()
	r, err := h.cfg.Journal.ClaimHeal(ctx, lost.Position, h.size.Now())
	claimed()
	if r == nil || err != nil {
		return 0, err
	}
	done, keys, err := h.unlinkAgain(ctx, r)
	if err == nil {
		settled := h.cfg.Metrics.Call()
		err = r.Settle(ctx, store.Position(done.Position), done.Born)
		settled()
	} else {
		err = errors.Join(err, r.Release())
	}
	if err != nil {
		return 0, err
	}
	h.progress.did(&h.cfg, len(r.Batches), keys)
	for _, b := range r.Damaged {
		h.cfg.Log.Error("a batch of the journal cannot be read, so it is not healed: what it unlinked may be stale until its TTL; "+
			"it is set aside, the others are healed", "batch", b.ID, "rows", b.Rows, "settled_at", b.SettledAt, "worker", b.Worker,
			"error", b.Err, "cure", "invalidate again what was written at about that time, see 'unstale status'")
	}
	return len(r.Batches) + len(r.Damaged), nil
}

// unlinkAgain unlinks and publishes the keys of batches. It sets their tombstones for the full hold
// time again, since Redis may have lost any part of them. Batches without keys get a position too.
func (h *Healer) unlinkAgain(ctx context.Context, r *store.HealClaim) (done keyspace.Unlinked, n int, err error) {
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
	if done, err = h.cfg.Redis.Unlink(ctx, set.Targets); err != nil {
		return done, 0, fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if IsRedis(f.Err) { // of the shard that has the key, which cannot be left out
			return done, 0, fmt.Errorf("unlink keys again: %w", f.Err)
		}
		// Its row was settled once, so the ACL permission was revoked since.
		h.cfg.Log.Error("redis refuses a key while healing; it may be stale", "error", f.Err)
	}
	if len(keys) == 0 {
		if done.Position, err = h.cfg.Redis.CheckBeacon(ctx); err != nil {
			return done, 0, err
		}
	}
	if _, err := h.cfg.Publish(ctx, keyspace.News{Keys: keys, Unlinked: done.Born}); err != nil {
		return done, 0, fmt.Errorf("publish keys again: %w", err)
	}
	return done, len(keys), nil
}
