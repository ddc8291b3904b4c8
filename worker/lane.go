package worker

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// heavyOfABatch is how many heavy rows a batch asks for at most.
const heavyOfABatch = 100

// claimFunc takes rows: Queue.Claim or Queue.ClaimDue.
type claimFunc func(context.Context, store.ClaimLimits) (*store.Claim, error)

// A lane processes the rows of one queue: light rows in large batches, heavy rows in separate
// batches. The loop owns it.
type lane struct {
	claim claimFunc
	aside asideList
	// size bounds the rows of a light batch and heavySize those of a heavy one. All lanes share
	// both.
	size, heavySize *maintenance.BatchSize
}

// A turn is one batch of a lane, of light rows or of heavy ones.
type turn struct {
	lane  *lane
	heavy bool
}

func (t turn) size() *maintenance.BatchSize {
	if t.heavy {
		return t.lane.heavySize
	}
	return t.lane.size
}

// limits returns the limits of the turn's next claim.
func (t turn) limits(most budget, limits store.ClaimLimits) store.ClaimLimits {
	limits.Rows = t.size().Now()
	if t.heavy {
		limits.Only = t.lane.aside.first(limits.Rows)
		limits.Bytes = min(limits.Bytes, most.params)
	} else {
		limits.Pass, limits.Large = t.lane.aside.ids, lightParams
	}
	return limits
}

// budget returns the budget of the turn's next batch.
func (t turn) budget(cfg *Config) budget {
	if t.heavy {
		return cfg.heavyBudget()
	}
	return cfg.lightBudget()
}

// gone drops rows that the claim did not find: they are gone, or another worker has locked them.
func (t turn) gone(asked []uint64) { t.lane.aside.remove(asked) }

// failed moves the rows that the turn asked for behind the others.
func (t turn) failed(asked []uint64) { t.lane.aside.putBack(asked) }

// over updates the list after a batch: heavy rows that it found are added, and rows that it asked
// for are dropped unless it left them out.
func (t turn) over(asked []uint64, c *store.Claim, b *batch) {
	t.lane.aside.add(b.aside)
	wait := c.Left
	for _, r := range c.Rows[min(len(b.changes), len(c.Rows)):] {
		wait = append(wait, r.ID)
	}
	t.lane.aside.remove(slices.DeleteFunc(asked, func(id uint64) bool { return slices.Contains(wait, id) }))
}

// firstLight is how long light rows go first when the first heavy row is set aside. Mostly no light
// row waits after that time.
const firstLight = time.Second

// A fairShare gives heavy rows half of the time while light rows wait: after each batch of heavy
// rows, light rows get as much time as that batch took.
type fairShare struct{ lightUntil time.Time }

// lanes are the lanes of both queues. The loop owns them.
type lanes struct {
	run      func(context.Context, turn) (Result, error)
	hot, due *lane    // of cache_outbox, and of delayed rows whose time has come
	turns    [2]*lane // both; the second had the last heavy turn
	fair     fairShare
	heavy    *heavyRows // of both, for others to see
}

// newLanes returns lanes that claim at most so many rows at a time.
func newLanes(most int, q *store.Queue, heavy *heavyRows, run func(context.Context, turn) (Result, error)) *lanes {
	size, heavySize := maintenance.NewBatchSize(most), maintenance.NewBatchSize(min(most, heavyOfABatch))
	hot := &lane{claim: q.Claim, size: size, heavySize: heavySize}
	due := &lane{claim: q.ClaimDue, size: size, heavySize: heavySize}
	return &lanes{run: run, hot: hot, due: due, turns: [2]*lane{hot, due}, heavy: heavy}
}

// light processes one batch of the light rows of a lane.
func (l *lanes) light(ctx context.Context, of *lane) (Result, error) {
	return l.run(ctx, turn{lane: of})
}

// heavyTurn processes one batch of the heavy rows that were set aside, if there are any and if it
// is their turn. Light rows behind heavy ones wait at most twice as long as without them, and for
// one batch of heavy rows. r is the result of the light rows; heavyTurn adds its own.
func (l *lanes) heavyTurn(ctx context.Context, r *Result) error {
	tell := func() { l.heavy.set(l.hot.aside.ids, l.due.aside.ids) }
	tell()
	defer tell()
	next := l.nextHeavy()
	if next == nil {
		l.fair.lightUntil = time.Time{}
		return nil
	}
	if l.fair.lightUntil.IsZero() {
		l.fair.lightUntil = time.Now().Add(firstLight)
	}
	if r.Full && time.Now().Before(l.fair.lightUntil) {
		return nil
	}
	l.turns = [2]*lane{l.turns[1], l.turns[0]} // in turns
	began := time.Now()
	done, err := l.run(ctx, turn{next, true})
	l.fair.lightUntil = time.Now().Add(time.Since(began))
	full := r.Full || l.nextHeavy() != nil
	r.add(done)
	r.Full = full
	return err
}

// nextHeavy returns the lane whose heavy rows are next, or nil if no heavy row waits.
func (l *lanes) nextHeavy() *lane {
	for _, next := range l.turns {
		if len(next.aside.ids) > 0 {
			return next
		}
	}
	return nil
}
