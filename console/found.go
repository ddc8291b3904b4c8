package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/shadow"
	"github.com/unstale/unstale/internal/staleentries"
)

// A foundEntry is an old entry that a spot check or a shadow read found.
type foundEntry struct {
	At   time.Time
	Key  string
	Tag  string // in two words
	Says string // what was found, and what to do
	Row  uint64 // that it survived; 0: none is known

	lease time.Time // of a value that differs from the database
}

// foundSource reads the old entries that were found most recently.
func (c *Console) foundSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		survivors, err := staleentries.New(c.db).Latest(ctx, shownRows)
		if err != nil {
			return nil, err
		}
		differences, err := shadow.NewTable(c.db).Latest(ctx, shownRows)
		if err != nil {
			return nil, err
		}
		return newFound(survivors, differences), nil
	})
}

// foundOf returns the old entries of a key that were found most recently.
func foundOf(ctx context.Context, db *session.Sessions, key string) ([]foundEntry, error) {
	survivors, err := staleentries.New(db).Of(ctx, key, shownRows)
	if err != nil {
		return nil, err
	}
	differences, err := shadow.NewTable(db).Of(ctx, key, shownRows)
	if err != nil {
		return nil, err
	}
	return newFound(survivors, differences), nil
}

// newFound merges what both kinds of checks found, the newest first.
func newFound(survivors []staleentries.Entry, differences []shadow.Stored) []foundEntry {
	list := []foundEntry{}
	for _, e := range survivors {
		list = append(list, newSurvivor(e))
	}
	for _, d := range differences {
		list = append(list, newDifference(d))
	}
	slices.SortStableFunc(list, func(a, b foundEntry) int { return b.At.Compare(a.At) })
	return list[:min(len(list), shownRows)]
}

func newSurvivor(e staleentries.Entry) foundEntry {
	during, now := "", "It is still there."
	if e.Held {
		during = ", during a hold"
	}
	if e.Repaired {
		now = "The worker has unlinked it."
	}
	return foundEntry{
		At: e.FoundAt, Key: e.Key, Tag: "stale entry", Row: e.Row,
		Says: "It survived its UNLINK" + during + ". " + now + " Look for a program that stores values without package cache: docs/operations.md#a-stale-entry",
	}
}

func newDifference(d shadow.Stored) foundEntry {
	f := foundEntry{At: d.At, Key: d.Key, Tag: "old value", lease: d.Lease, Says: "The database has another value, although the key was unlinked."}
	if d.Outcome == shadow.NoRow {
		f.Tag, f.Says = "forgotten row", "The database has another value, and no row has named the key since "+d.Lease.UTC().Format(time.DateTime)+" UTC."
	}
	if len(d.Entities) > 0 {
		f.Says += " Rows of " + strings.Join(d.Entities, ", ") + " reach it."
	}
	f.Says += " Process " + d.Process + " noticed it. What to do: " + d.Fix()
	return f
}
