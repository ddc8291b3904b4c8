package review

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// journalLimit bounds the reading of the journal.
const journalLimit = 20 * time.Second

// A journalRead says what is known of the journal.
type journalRead struct {
	err     error
	since   *time.Time // nil: it is empty
	read    bool
	damaged int // batches that nobody can read
}

var errNoJournal = errors.New("without --mysql-dsn the journal is not read")

// ReadJournal notes which families were invalidated, as far as the journal goes back. Call it after the walk; where it is not
// called, or fails, nobody knows.
func (r *Review) ReadJournal(ctx context.Context, s *store.Store) {
	if !r.hasLong() {
		r.journal.read = true // nothing to ask for
		return
	}
	ctx, cancel := context.WithTimeout(ctx, journalLimit)
	defer cancel()
	r.journal.since, r.journal.err = s.JournalStart(ctx)
	if r.journal.err != nil {
		return
	}
	r.journal.err = s.ReadJournal(ctx, store.JournalQuery{}, func(_ store.Batch, entries []store.Entry) error {
		for i := range entries {
			r.invalidated(&entries[i])
		}
		return ctx.Err()
	}, func(store.DamagedBatch) { r.journal.damaged++ })
	if r.journal.err == nil && r.journal.damaged > 0 {
		r.journal.err = fmt.Errorf("%d of its batches are damaged; docs/redis.md, A damaged batch", r.journal.damaged)
	}
	r.journal.read = r.journal.err == nil
}

// hasLong reports whether there is a family of which the journal would tell something.
func (r *Review) hasLong() bool {
	for _, f := range r.families() {
		if f.Long > 0 && !f.Own {
			return true
		}
	}
	return false
}

// invalidated notes an entry. A pattern is taken for a name in which stars are ids.
func (r *Review) invalidated(e *store.Entry) {
	for _, list := range [][]string{e.Keys, e.Patterns, e.Sets} {
		for _, name := range list {
			if at := r.matcher.First(name); at >= 0 {
				r.mapped[at].Invalidated = true
				continue
			}
			for _, f := range r.unknown.find(name) {
				f.Invalidated = true
			}
		}
	}
}
