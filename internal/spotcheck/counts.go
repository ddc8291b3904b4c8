package spotcheck

import (
	"context"
	"maps"
)

// Counts are the results of all checks of the batches that this process settled in one minute.
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

// add counts the result of a check.
func (t *tally) add(c *check, r Result, repaired bool) {
	minute := c.batch.minute()
	n := t.counts[minute]
	if n == nil {
		n = &Counts{}
		t.counts[minute] = n
	}
	t.changed[minute] = true
	once := func(counted *bool, count *uint64) {
		if !*counted {
			*counted = true
			*count++
		}
	}
	n.Checked++
	switch r {
	case Unknown:
		n.Unknown++
		return
	case Absent:
		n.Absent++
	case Found:
		n.Stale++
		once(&c.batch.stale, &n.StaleBatches)
		fallthrough
	case Fresh:
		n.WithEntry++
		once(&c.batch.had, &n.EntryBatches)
	}
	once(&c.batch.known, &n.Sampled)
	if repaired {
		n.Repaired++
	}
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
