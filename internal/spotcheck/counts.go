package spotcheck

import (
	"context"
	"maps"
)

// Counts are the results of all checks of the batches that this process settled in one minute. A
// check counts from its first look on, with the result of the last one so far.
type Counts struct {
	Sampled      uint64 // batches with at least one check that is not unknown
	EntryBatches uint64 // of Sampled: with at least one entry found
	StaleBatches uint64 // of Sampled: with at least one stale entry found

	Checked   uint64 // WithEntry, Absent and Unknown
	WithEntry uint64 // an entry with a lease time was found, stale or not
	Stale     uint64 // of WithEntry
	Absent    uint64
	Unknown   uint64
	Repaired  uint64 // stale entries that were unlinked
}

// A tally has the counts of the minutes whose checks are not all written yet. One goroutine owns it.
type tally struct {
	counts  map[int64]*Counts
	changed map[int64]bool
}

func newTally() tally { return tally{map[int64]*Counts{}, map[int64]bool{}} }

// set counts the result of a check, in place of that of its last look.
func (t *tally) set(c *check, r Result, repaired bool) {
	minute := c.batch.minute()
	n := t.counts[minute]
	if n == nil {
		n = &Counts{}
		t.counts[minute] = n
	}
	t.changed[minute] = true
	if c.found != "" {
		n.add(c.batch, c.found, -1)
	}
	c.found = r
	n.add(c.batch, r, 1)
	if repaired {
		n.Repaired++
	}
}

// add adds or removes (by is -1) a check with a result.
func (n *Counts) add(b *batch, r Result, by int) {
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

// write notes the minutes that have changed. It forgets those without a check to come.
func (t *tally) write(ctx context.Context, note func(context.Context, int64, Counts) error, now int64) error {
	for minute := range maps.Clone(t.changed) {
		if err := note(ctx, minute, *t.counts[minute]); err != nil {
			return err
		}
		delete(t.changed, minute)
	}
	for minute := range t.counts {
		if minute < now-3 && !t.changed[minute] {
			delete(t.counts, minute)
		}
	}
	return nil
}
