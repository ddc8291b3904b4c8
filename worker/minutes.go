package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// visible returns how long a row was visible before the time of its UNLINK, at most: see
// metrics.late. The age is the age of the row at that time. A delayed row was visible when it was
// first claimed, so its age counts.
func visible(c *store.Claim, age time.Duration, unlinked time.Time) time.Duration {
	if c.Unseen.IsZero() {
		return age
	}
	return min(age, unlinked.Sub(c.Unseen))
}

// counts returns the counts of a batch, as its settlement decides, and those by entity.
func (b *batch) counts(ageOf func(*store.ClaimedRow, time.Time) time.Duration, c *store.Claim, s *store.Settlement) (n store.Counts, by store.Entities) {
	by = store.Entities{}
	if len(b.set.Targets) > 0 {
		n.Batches = 1
	}
	dead := s.Dead // in the order of the changes
	for i := range b.changes {
		change := &b.changes[i]
		r := change.row
		died := len(dead) > 0 && dead[0].ID == r.ID
		if died {
			dead = dead[1:]
		}
		switch {
		case r.Repeated || r.FirstID == 0:
		case died:
			n.Dead++
		case change.fault == nil && change.away == nil && len(change.plan.Keys) > 0:
			late := visible(c, ageOf(r, s.Marks.Unlinked), s.Marks.Unlinked)
			n.Add(late)
			by.Add(r.Entity, late)
		}
	}
	return n, by
}
