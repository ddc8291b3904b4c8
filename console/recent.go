package console

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

const (
	recentEvery   = 500 * time.Millisecond // one statement
	recentBatches = 40                     // read; sweeps are among them
	shownBatches  = 12
	recentBody    = 16 << 10 // bytes; a batch of some hundred rows
	// shownEntries is how many rows of a batch are listed.
	shownEntries = 3
)

// A recentBatch is one batch of the panel "recent".
type recentBatch struct {
	store.RecentBatch
	Shown []recentEntry
	More  int // rows that are not shown
}

// A recentEntry is one row of a batch, or a finished sweep.
type recentEntry struct {
	store.JournalEntry
	Name  string         // one key, pattern or set of the row
	Names int            // the others
	After *time.Duration // from its insert until its keys were gone; nil: unknown, or it was scheduled
	// it may be a repeat, which is late on purpose
	MayRepeat bool
}

// Scheduled reports whether an application scheduled the row, so its insert says nothing about how
// late it was.
func (e *recentEntry) Scheduled() bool { return e.ID == 0 && !e.IsSweep() }

// recentSource reads the end of the journal.
func (c *Console) recentSource() *source {
	var before []recentBatch
	return c.reads(recentEvery, func(ctx context.Context) (any, error) {
		known, ids := map[uint64]*recentBatch{}, []uint64(nil)
		for i := range before {
			known[before[i].ID] = &before[i]
			ids = append(ids, before[i].ID)
		}
		found, err := store.NewJournal(c.db).Recent(ctx, recentBatches, recentBody, ids)
		if err != nil {
			return nil, err
		}
		list := make([]recentBatch, len(found))
		for i := range found {
			if k := known[found[i].ID]; k != nil {
				list[i] = *k
			} else {
				list[i] = newRecentBatch(found[i], c.cfg.runningMap())
			}
		}
		before = list
		return onlyRows(list), nil
	})
}

// onlyRows returns the newest batches of rows: a pattern that rows ask for all the time has a sweep
// for each batch.
func onlyRows(all []recentBatch) []recentBatch {
	var rows []recentBatch
	for _, b := range all {
		if b.Rows > 0 && len(rows) < shownBatches {
			rows = append(rows, b)
		}
	}
	if len(rows) > 0 {
		return rows
	}
	return all[:min(len(all), shownBatches)]
}

func newRecentBatch(b store.RecentBatch, m *invalidation.Map) recentBatch {
	out := recentBatch{RecentBatch: b, More: b.Rows}
	for i := range b.Entries {
		if len(out.Shown) == shownEntries {
			break
		}
		e := recentEntry{JournalEntry: b.Entries[i]}
		for _, names := range [][]string{e.Keys, e.Patterns, e.Sets} {
			if e.Name == "" && len(names) > 0 {
				e.Name = names[0]
			}
		}
		e.Names = max(e.JournalEntry.Names()-1, 0)
		if b.Journey != nil && e.WrittenMicros != 0 && b.Journey.Unlinked != 0 && !e.Scheduled() {
			after := b.SettledAt.Add(-b.Journey.Unlinked).Sub(time.UnixMicro(e.WrittenMicros))
			e.After, e.MayRepeat = &after, history.MayRepeat(m, e.Entity, after)
		}
		out.Shown = append(out.Shown, e)
	}
	out.More = max(max(b.Rows, len(b.Entries))-len(out.Shown), 0)
	out.Entries = nil
	return out
}
