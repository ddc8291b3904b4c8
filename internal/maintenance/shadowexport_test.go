package maintenance

import (
	"context"

	"github.com/unstale/unstale/internal/store"
)

// CountSearches counts how often the journal is searched from now on.
func (c *ShadowChecker) CountSearches(n *int) { c.journal = countedJournal{c.Store.Journal, n} }

type countedJournal struct {
	*store.Journal
	searched *int
}

func (j countedJournal) SearchJournal(ctx context.Context, q store.JournalQuery, visit func(store.Batch, []store.JournalEntry) bool, damaged func(store.DamagedBatch)) error {
	*j.searched++
	return j.Journal.SearchJournal(ctx, q, visit, damaged)
}

func (c *ShadowChecker) Step(ctx context.Context) { c.step(ctx) }

// Waiting returns how many reports wait for their check.
func (c *ShadowChecker) Waiting() int { return len(c.waiting) }

const (
	Keep        = keep
	MostWaiting = mostWaiting
)
