package review

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/session"
)

// journalLimit bounds the reading of the journal.
const journalLimit = 20 * time.Second

// A journalRead is the result of reading the journal.
type journalRead struct {
	err     error
	since   *time.Time // nil: it is empty
	read    bool
	damaged int // batches that cannot be read
}

var errNoJournal = errors.New("without --mysql-dsn the journal is not read")

// ReadJournal records the families that were invalidated, as far as the journal goes back. Call it
// after the walk. Without it, or if it fails, the invalidated families are unknown.
func (r *Review) ReadJournal(ctx context.Context, s *session.Sessions) {
	if !r.hasLong() {
		r.journal.read = true // nothing to ask for
		return
	}
	ctx, cancel := context.WithTimeout(ctx, journalLimit)
	defer cancel()
	r.journal.since, r.journal.err = journal.New(s).JournalStart(ctx)
	if r.journal.err != nil {
		return
	}
	r.journal.err = journal.New(s).ReadJournal(ctx, journal.JournalQuery{}, func(_ journal.Batch, entries []journal.Entry) error {
		for i := range entries {
			r.invalidated(&entries[i])
		}
		return ctx.Err()
	}, func(journal.DamagedBatch) { r.journal.damaged++ })
	if r.journal.err == nil && r.journal.damaged > 0 {
		r.journal.err = fmt.Errorf("%d of its batches are damaged; docs/redis.md, A damaged batch", r.journal.damaged)
	}
	r.journal.read = r.journal.err == nil
}

// hasLong reports whether the journal matters for any family.
func (r *Review) hasLong() bool {
	for _, f := range r.families() {
		if f.Long > 0 && !f.Own {
			return true
		}
	}
	return false
}

// invalidated records an entry. In a pattern, stars count as IDs.
func (r *Review) invalidated(e *journal.Entry) {
	for _, list := range [][]string{e.Keys, e.Patterns, e.Sets} {
		for _, name := range list {
			if at := r.matcher.First(name); at >= 0 {
				r.mapped[at].Invalidated = true
				r.reads.invalidated(r.names[at].Reads)
				continue
			}
			for _, f := range r.unknown.find(name) {
				f.Invalidated = true
			}
		}
	}
}
