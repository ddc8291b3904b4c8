package worker

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// heavyOfABatch is how many heavy rows a batch asks for at most.
const heavyOfABatch = 100

// A lane processes the rows of one queue: light rows in large batches, heavy rows in batches of
// their own. Owned by the loop.
type lane struct {
	claim claimFunc
	aside asideList
	// size bounds the rows of a light batch and heavySize those of a heavy one. All lanes share both.
	size, heavySize *batchSize
}

// A turn is one batch of a lane, of light rows or of heavy ones.
type turn struct {
	lane  *lane
	heavy bool
}

func (t turn) size() *batchSize {
	if t.heavy {
		return t.lane.heavySize
	}
	return t.lane.size
}

// limits returns the limits of the turn's next claim.
func (t turn) limits(most budget, limits store.ClaimLimits) store.ClaimLimits {
	limits.Rows = t.size().now
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

// A fairShare gives heavy rows half of the time while light rows wait: after each batch of heavy rows,
// light rows get as much time as that batch took.
type fairShare struct{ lightUntil time.Time }

// heavyTurn processes one batch of the heavy rows that were set aside, if there are any and if it is
// their turn. Light rows behind heavy ones wait at most twice as long as without them, and for one batch
// of heavy rows. r is the result of the light rows; heavyTurn adds its own.
func (w *engine) heavyTurn(ctx context.Context, r *Result) error {
	l := w.heavyLane()
	if l == nil {
		w.fair.lightUntil = time.Time{}
		return nil
	}
	if w.fair.lightUntil.IsZero() {
		w.fair.lightUntil = time.Now().Add(firstLight)
	}
	if r.Full && time.Now().Before(w.fair.lightUntil) {
		return nil
	}
	w.lanes = [2]*lane{w.lanes[1], w.lanes[0]} // in turns
	began := time.Now()
	done, err := w.runBatch(ctx, turn{l, true})
	w.fair.lightUntil = time.Now().Add(time.Since(began))
	full := r.Full || w.heavyLane() != nil
	r.add(done)
	r.Full = full
	return err
}

// heavyLane returns the lane whose heavy rows are next, or nil if no heavy row waits.
func (w *engine) heavyLane() *lane {
	for _, l := range w.lanes {
		if len(l.aside.ids) > 0 {
			return l
		}
	}
	return nil
}
