package maintenance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// A HealState reports how far a slice of healing has come.
type HealState uint8

const (
	Healed HealState = iota // Redis has everything that was settled before the slice
	More                    // some was healed, and there may be more
	Busy                    // others hold what is left
)

// A Healer heals Redis. One goroutine owns it.
type Healer struct {
	Deps
	metrics   HealMetrics
	limit     time.Duration  // of one claim of batches, until it is settled
	size      *BatchSize     // of the next claim of journalled batches
	positions knownPositions // per the journal, which Redis must have
	progress  progress
	moves     movesWait
}

// NewHealer returns a Healer. A run before this one may have left the metrics as they were.
func NewHealer(d Deps, m HealMetrics) *Healer {
	m.Over()
	return &Healer{Deps: d, metrics: m, limit: d.Store.Sessions.BatchLimit(), size: BatchSizeFrom(firstClaim, store.MaxHeal)}
}

// Lost drops what is left to heal of earlier losses. The next comparison finds all current losses.
func (h *Healer) Lost() { h.progress.lost() }

// Run heals until Redis has everything that was settled before the call.
func (h *Healer) Run(ctx context.Context) error {
	for {
		state, err := h.Step(ctx)
		if err != nil || state == Healed {
			return err
		}
		if state == Busy {
			if err := sleep.For(ctx, HealPause); err != nil {
				return err
			}
		}
	}
}

// Step heals for about Slice: it compares the journal with Redis's beacons, of all workers in the
// journal, and repeats the unlinks that Redis has lost. Even if that is the whole journal, new rows
// do not wait for it. They do not need to: rows settled meanwhile have positions after the loss,
// and the next comparison covers them.
//
// Each healed batch moves to this worker's epoch, in the transaction that locks the batch. Workers
// therefore share the work, and if one crashes, the others heal the rest.
func (h *Healer) Step(ctx context.Context) (HealState, error) {
	p := &h.progress // of the whole healing, over the outages in it
	if len(p.left) == 0 {
		if !p.noticed && time.Now().Before(h.moves.next) {
			return Busy, nil
		}
		losses, epoch, err := h.losses(ctx)
		if err != nil {
			return More, err
		}
		if len(losses) == 0 {
			h.moves = movesWait{}
			h.State.Loop.Healed(epoch)
			p.over(h)
			return Healed, nil
		}
		wait, err := h.awaitsMoves(ctx)
		if wait || err != nil {
			h.State.Loop.Withhold(ErrComparing)
			return Busy, err
		}
		h.Redis.Doubt()
		h.moves, p.decided = movesWait{}, true
		p.lose = slices.ContainsFunc(losses, func(l loss) bool { return !l.isAdopted() })
		if p.lose {
			p.logBegin(h)
		}
		p.left, p.found, p.expected = losses, false, 0
		for _, l := range losses {
			p.expected += l.batches
		}
		h.metrics.Left(p.expected)
	}
	why := ErrEmptied
	if p.lose {
		why = ErrHealing
	}
	h.State.Loop.Withhold(why)
	for end := time.Now().Add(Slice); len(p.left) > 0; {
		over, err := h.epoch(ctx, p.left[0], end)
		if err != nil { // which may be that of one shard: the others go first the next time
			p.left = append(p.left[1:], p.left[0])
			return More, err
		}
		if !over {
			return More, nil
		}
		p.left = p.left[1:]
	}
	if p.found {
		return More, nil // to the next comparison
	}
	return Busy, nil
}

const (
	// movesPatience is how long a worker waits for others to confirm that slots have moved: two
	// comparisons.
	movesPatience = 2 * Interval
	movesPause    = 500 * time.Millisecond
)

// A movesWait is the wait of a worker while what looks lost may only be slots that have moved in a
// Redis Cluster: see keyspace.Beacons.ConfirmMoved.
type movesWait struct{ since, next time.Time }

// awaitsMoves reports whether to compare again later, since what looks lost may be slots that have
// moved. The masters may be listed right by then, and another worker confirms moves within a second
// or two, or finds the loss too. Without such a worker, a loss counts after keyspace.MovesSettle, or
// at the second comparison if the masters have not changed.
func (h *Healer) awaitsMoves(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Sub(h.moves.next) > keyspace.MovesSettle { // the first time, or the first time after a break
		h.moves.since = now
	}
	waited := now.Sub(h.moves.since)
	if h.progress.noticed || h.progress.decided || waited > movesPatience || !h.Redis.CannotTell(h.moves.since) {
		return false, nil
	}
	if waited >= keyspace.MovesSettle {
		if others, err := h.othersWork(ctx); err != nil || !others {
			return false, err
		}
	}
	h.moves.next = now.Add(movesPause)
	return true, nil
}

// othersWork reports whether another worker works, and does not wait itself. An account that may
// not know counts as alone.
func (h *Healer) othersWork(ctx context.Context) (bool, error) {
	workers, err := h.Store.Workers.Workers(ctx)
	if session.IsRefusal(err) {
		return false, nil
	}
	return slices.ContainsFunc(workers, func(n store.WorkerNote) bool {
		return n.ID != h.Store.ID && n.Lives() && n.State == store.WorkerWorking && n.Error != ErrComparing.Error()
	}), err
}

// losses returns the losses of Redis, and the epoch of the beacon during the comparison.
func (h *Healer) losses(ctx context.Context) (losses []loss, epoch string, err error) {
	now, err := h.Redis.CheckBeacon(ctx)
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
	after, err := h.Redis.CheckBeacon(ctx)
	if err != nil {
		return nil, "", err
	}
	if after.Epoch != now.Epoch { // it has, and the heartbeat was told
		return nil, "", &keyspace.Loss{Position: now}
	}
	for _, epoch := range emptied {
		losses = append(losses, loss{Position: store.Position{Epoch: epoch}, adopt: store.Position(after), batches: h.positions.last[epoch]})
	}
	h.Log.Info("redis holds no data, so nothing is stale", "epochs", len(emptied))
	return losses, now.Epoch, nil
}

// compare asks Redis for the position that it has of each listed epoch.
func (h *Healer) compare(ctx context.Context, list func(context.Context, *store.Journal) (map[string]uint64, error)) (losses []loss, emptied []string, err error) {
	listed := h.metrics.Positions()
	last, err := list(ctx, h.Store.Journal)
	listed()
	if err != nil {
		return nil, nil, err
	}
	survived, err := h.Redis.Survived(ctx, slices.Collect(maps.Keys(last)))
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
		err = h.Redis.ConfirmMoved(ctx, last)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.limit)
	defer cancel()
	defer func() {
		switch {
		case err != nil && ctx.Err() != nil: // it took too long
			h.size.Halve()
		case err != nil || batches == 0:
		case time.Since(began) > Slice:
			h.size.Halve()
		default:
			h.size.Grow()
		}
	}()
	if lost.isAdopted() {
		defer h.metrics.Call()()
		batches, err = h.Store.Journal.Adopt(ctx, lost.Epoch, lost.adopt, h.size.Now())
		h.progress.less(h, batches)
		return batches, err
	}
	claimed := h.metrics.Call()
	r, err := h.Store.Journal.ClaimHeal(ctx, lost.Position, h.size.Now())
	claimed()
	if r == nil || err != nil {
		return 0, err
	}
	done, keys, err := h.unlinkAgain(ctx, r)
	if err == nil {
		settled := h.metrics.Call()
		err = r.Settle(ctx, store.Position(done.Position), done.Born)
		settled()
	} else {
		err = errors.Join(err, r.Release())
	}
	if err != nil {
		return 0, err
	}
	h.progress.did(h, len(r.Batches), keys)
	for _, b := range r.Damaged {
		h.Log.Error("a batch of the journal cannot be read, so it is not healed: what it unlinked may be stale until its TTL; "+
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
	if done, err = h.Redis.Unlink(ctx, set.Targets); err != nil {
		return done, 0, fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if IsRedis(f.Err) { // of the shard that has the key, which cannot be left out
			return done, 0, fmt.Errorf("unlink keys again: %w", f.Err)
		}
		// Its row was settled once, so the ACL permission was revoked since.
		h.Log.Error("redis refuses a key while healing; it may be stale", "error", f.Err)
	}
	if len(keys) == 0 {
		if done.Position, err = h.Redis.CheckBeacon(ctx); err != nil {
			return done, 0, err
		}
	}
	if _, err := h.Channels.Publish(ctx, keyspace.News{Keys: keys, Unlinked: done.Born}); err != nil {
		return done, 0, fmt.Errorf("publish keys again: %w", err)
	}
	return done, len(keys), nil
}

const (
	// Interval is the time between two comparisons of all epochs.
	Interval = 5 * time.Second
	// Slice is about how long Step heals, before new rows have their turn.
	Slice = 100 * time.Millisecond
	// HealPause is the wait while other workers heal what is left.
	HealPause = 50 * time.Millisecond

	firstClaim       = 25              // batches, which must not take longer than a slice
	progressInterval = 5 * time.Second // between two lines in the log
)

// HealMetrics measure healing.
type HealMetrics interface {
	// Positions and Call begin a call to MySQL, which ends with the function that they return.
	// Positions is for reading the positions of the journal, and Call for every other call.
	Positions() (end func())
	Call() (end func())
	Began()
	Did(batches, keys int)
	// Left sets how many batches may still have to be unlinked again.
	Left(batches uint64)
	Over()
}

// A loss is an epoch that Redis does not have up to its last position in the journal.
type loss struct {
	store.Position // the last that Redis still has
	// adopt is set if Redis has no data at all, so nothing of the epoch can be stale. The epoch's
	// batches then move to this position, which Redis has.
	adopt store.Position
	// batches is the number of batches to heal, at most.
	batches uint64
}

func (l loss) isAdopted() bool { return l.adopt != store.Position{} }

const (
	// Batches expire, so all positions are read again after this time.
	positionsLife    = 10 * time.Minute
	positionsOverlap = 30 * time.Second // longer than any settlement
	// isBusy: reading this many of this worker's batches, including the overlap, costs as much as
	// querying one epoch.
	positionsBatches = 8
)

// knownPositions caches the last position of each epoch in the journal. There may be thousands of
// epochs of processes that are long gone, so changes are read every few seconds and the full list
// rarely. Owned by the loop.
type knownPositions struct {
	last map[string]uint64
	read time.Time // all of it
	seen time.Time // the latest changes
}

// recent returns the positions, updated with the batches settled since the last call.
func (l *knownPositions) recent(ctx context.Context, from *store.Journal) (map[string]uint64, error) {
	now := time.Now()
	if l.last == nil || now.Sub(l.read) > positionsLife {
		return l.all(ctx, from)
	}
	positions, err := from.RecentPositions(ctx, now.Sub(l.seen)+positionsOverlap)
	if err != nil {
		return nil, err
	}
	for _, b := range positions {
		l.last[b.Epoch] = max(l.last[b.Epoch], b.N)
	}
	l.seen = now
	return maps.Clone(l.last), nil
}

// all returns the positions, read from the journal in full.
func (l *knownPositions) all(ctx context.Context, from *store.Journal) (map[string]uint64, error) {
	now := time.Now()
	positions, err := from.LastPositions(ctx)
	if err != nil {
		return nil, err
	}
	l.last = make(map[string]uint64, len(positions))
	for _, b := range positions {
		l.last[b.Epoch] = b.N
	}
	l.read, l.seen = now, now
	return maps.Clone(l.last), nil
}

// isBusy reports whether this worker, now at position, has settled so much since the last call that
// querying every epoch is faster than reading the settled batches. Every row would wait for that
// read.
func (l *knownPositions) isBusy(epoch string, position uint64) bool {
	return position-l.last[epoch] > uint64(positionsBatches*(len(l.last)+1))
}

// A progress records how far a healing has come, for the next slice, the log and the metrics.
type progress struct {
	// left are the losses of the last comparison that are not healed yet. Rows settled since then
	// are not included, and another loss resets the list.
	left  []loss
	found bool // this worker has healed some of them
	lose  bool // unlinks are among them
	// expected is the number of batches in left, at most.
	expected uint64

	began, said   time.Time
	batches, keys int
	noticed       bool // something may be missing, and the log reports it
	decided       bool // it is, and not only slots that have moved
}

// lost records another loss.
func (p *progress) lost() { p.noticed, p.left = true, nil }

func (p *progress) logBegin(c *Healer) {
	if !p.began.IsZero() {
		return
	}
	p.began, p.said = time.Now(), time.Now()
	c.metrics.Began()
	c.Log.Warn("redis lost unlinks that it had acknowledged; healing from the journal while new rows are processed")
}

func (p *progress) did(c *Healer, batches, keys int) {
	p.batches, p.keys = p.batches+batches, p.keys+keys
	c.metrics.Did(batches, keys)
	p.less(c, batches)
	if time.Since(p.said) >= progressInterval {
		p.said = time.Now()
		c.Log.Info("healing", "batches", p.batches, "keys", p.keys)
	}
}

// less records that fewer batches are left.
func (p *progress) less(c *Healer, batches int) {
	p.expected -= min(p.expected, uint64(batches))
	c.metrics.Left(p.expected)
	c.State.Turn()
}

func (p *progress) over(c *Healer) {
	defer func() { *p = progress{} }()
	c.metrics.Over()
	switch {
	case p.began.IsZero() && p.noticed:
		c.Log.Info("compared with the journal: redis has everything that was settled")
	case !p.began.IsZero():
		c.Log.Info("healed: redis has everything again", "batches", p.batches, "keys", p.keys,
			"took", time.Since(p.began).Round(time.Millisecond).String())
	}
}
