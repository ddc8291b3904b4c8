package maintenance

import (
	"context"
	"maps"

	"github.com/unstale/unstale/internal/store"
)

// A tally has the results of the minutes whose checks are not all written yet. One goroutine owns
// it.
type tally struct {
	counts  map[store.Minute]*store.Checks
	changed map[store.Minute]bool
}

func newTally() tally { return tally{map[store.Minute]*store.Checks{}, map[store.Minute]bool{}} }

// set counts the result of a check, in place of that of its last look.
func (t *tally) set(c *check, r SpotResult, repaired bool) {
	minute := store.MinuteAt(c.batch.SettledAt)
	n := t.counts[minute]
	if n == nil {
		n = &store.Checks{}
		t.counts[minute] = n
	}
	t.changed[minute] = true
	if c.found != "" {
		add(n, c.batch, c.found, -1)
	}
	c.found = r
	add(n, c.batch, r, 1)
	if repaired {
		n.Repaired++
	}
}

// add adds a check with a result to n, or removes it (by is -1).
func add(n *store.Checks, b *batch, r SpotResult, by int) {
	count := func(checks *uint64) { *checks += uint64(by) }
	// a batch counts from its first check to its last one
	ofBatch := func(checks *int, batches *uint64) {
		if *checks += by; *checks == max(by, 0) {
			count(batches)
		}
	}
	count(&n.Checked)
	switch r {
	case Unknown:
		count(&n.Unknown)
		return
	case Absent:
		count(&n.Absent)
	case Found:
		count(&n.Stale)
		ofBatch(&b.stale, &n.StaleBatches)
		fallthrough
	case Fresh:
		count(&n.WithEntry)
		ofBatch(&b.had, &n.EntryBatches)
	}
	ofBatch(&b.known, &n.Sampled)
}

// write writes the minutes that have changed, and drops those whose checks have all ended.
func (t *tally) write(ctx context.Context, note func(context.Context, store.Minute, store.Checks) error, now store.Minute) error {
	for minute := range maps.Clone(t.changed) {
		if err := note(ctx, minute, *t.counts[minute]); err != nil {
			return err
		}
		delete(t.changed, minute)
	}
	for minute := range t.counts {
		if minute+3 < now && !t.changed[minute] {
			delete(t.counts, minute)
		}
	}
	return nil
}
