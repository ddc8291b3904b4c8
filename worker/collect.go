package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// collectRows is how many rows a batch collects before it is settled. Each further claim reads them
// again.
const collectRows = 100

// A part is the rows of a batch that were claimed and unlinked together. Most batches have one.
type part struct {
	*batch
	claim      *store.Claim
	done       Result
	settlement store.Settlement
	entities   store.Entities
	full       bool // see Result
}

// isPlain reports whether all rows are done and ask for nothing else.
func (p *part) isPlain() bool {
	s := &p.settlement
	return len(s.Done) == len(p.claim.Rows) && len(s.Repeats)+len(s.Sweeps) == 0
}

// collect processes the rows of a claim. While the turn is open, it also claims and processes those
// of each hint, which the same COMMIT settles: their keys are unlinked as soon as without it, and
// MySQL pays for fewer batches. Each part unlinks all of its keys, those of earlier parts too.
func (r *runner) collect(ctx context.Context, t turn, c *store.Claim, limits store.ClaimLimits, m *invalidation.Map, most budget) (parts []*part, err error) {
	var position keyspace.Position
	rows := 0
	for next := c; next != nil; {
		claimed := time.Now()
		p := &part{claim: next, batch: newBatch(m, next.Rows, most)}
		parts = append(parts, p)
		if p.done, p.settlement, err = r.apply(ctx, p.batch, most, t.alone); err != nil {
			return parts, err
		}
		if at := p.unlinks.Position; position.Epoch == "" {
			position = at
		} else if at.Epoch != "" && at.Epoch != position.Epoch { // what was unlinked before may be lost
			return parts, &keyspace.Loss{Position: position}
		}
		p.settlement.Marks.Claimed = claimed
		p.settlement.Counts, p.entities = p.counts(r.Store.Queue.Age, next, &p.settlement)
		p.full = len(next.Rows) >= limits.Rows || len(next.Left) > 0 || len(p.changes)+len(p.aside) < len(next.Rows)
		next = nil
		if rows += len(p.changes); p.isPlain() && rows < collectRows {
			if next, err = r.more(ctx, t, c, limits, p); err != nil {
				return parts, err
			}
		}
	}
	return parts, nil
}

// more returns the next claim that a hint leads to, or nil when the turn is over. p is the last
// part.
func (r *runner) more(ctx context.Context, t turn, c *store.Claim, limits store.ClaimLimits, p *part) (next *store.Claim, err error) {
	claimed := p.settlement.Marks.Claimed
	for next == nil && err == nil && c.TookAll() && r.hinted(ctx, t, claimed) {
		claimed = time.Now()
		answered := r.metrics.mysql.timeCall(callClaim)
		next, err = c.More(ctx, limits)
		answered()
		p.full = p.full || !c.TookAll()
	}
	return next, err
}

// hinted waits for a hint while the turn is open, and then until the wake interval since the last
// claim has passed.
func (r *runner) hinted(ctx context.Context, t turn, claimed time.Time) bool {
	earliest := claimed.Add(r.cfg.WakeInterval)
	if !time.Now().Before(t.open) || !earliest.Before(t.open) {
		return false
	}
	timer := time.NewTimer(time.Until(t.open))
	defer timer.Stop()
	select {
	case <-t.stopped:
		return false
	case <-timer.C:
		return false
	case <-r.State.Woken():
	}
	if r.State.Heals() { // which the loop does
		r.State.Wake()
		return false
	}
	return sleep.For(ctx, time.Until(earliest)) == nil
}

// outcomes returns the settlement of each part.
func outcomes(parts []*part) []store.Settlement {
	list := make([]store.Settlement, len(parts))
	for i, p := range parts {
		list[i] = p.settlement
	}
	return list
}

// receivers returns how many subscribers the message reached that reached the fewest.
func receivers(parts []*part) int {
	published := slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.done.Messages == 0 })
	if len(published) == 0 {
		return parts[0].settlement.Marks.Receivers
	}
	return slices.MinFunc(published, func(a, b *part) int {
		return cmp.Compare(a.settlement.Marks.Receivers, b.settlement.Marks.Receivers)
	}).settlement.Marks.Receivers
}

// processed returns the rows of all parts that were not left in the table.
func processed(parts []*part) []store.ClaimedRow {
	if len(parts) == 1 {
		return parts[0].rows(parts[0].claim.Rows)
	}
	var rows []store.ClaimedRow
	for _, p := range parts {
		rows = slices.Concat(rows, p.rows(p.claim.Rows))
	}
	return rows
}
