package history

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// An OldEntry is an old entry that a spot check or a shadow read found.
type OldEntry struct {
	At   time.Time
	Key  string
	Tag  string // in two words
	Says string // what was found, and what to do
	Row  uint64 // that it survived; 0: none is known

	lease time.Time // of a value that differs from the database
}

// LatestOld returns the old entries that were found most recently, at most limit.
func LatestOld(ctx context.Context, db *session.Sessions, limit int) ([]OldEntry, error) {
	survivors, err := store.NewStaleEntries(db).Latest(ctx, limit)
	if err != nil {
		return nil, err
	}
	differences, err := maintenance.NewShadowTable(db).Latest(ctx, limit)
	if err != nil {
		return nil, err
	}
	return newOld(survivors, differences, limit), nil
}

// oldOf returns those of a key, at most limit.
func oldOf(ctx context.Context, db *session.Sessions, key string, limit int) ([]OldEntry, error) {
	survivors, err := store.NewStaleEntries(db).Of(ctx, key, limit)
	if err != nil {
		return nil, err
	}
	differences, err := maintenance.NewShadowTable(db).Of(ctx, key, limit)
	if err != nil {
		return nil, err
	}
	return newOld(survivors, differences, limit), nil
}

// newOld merges what both kinds of checks found, the newest first.
func newOld(survivors []store.StaleEntry, differences []maintenance.ShadowStored, limit int) []OldEntry {
	list := []OldEntry{}
	for _, e := range survivors {
		list = append(list, newSurvivor(e))
	}
	for _, d := range differences {
		list = append(list, newDifference(d))
	}
	slices.SortStableFunc(list, func(a, b OldEntry) int { return b.At.Compare(a.At) })
	return list[:min(len(list), limit)]
}

func newSurvivor(e store.StaleEntry) OldEntry {
	during, now := "", "It is still there."
	if e.Held {
		during = ", during a hold"
	}
	if e.Repaired {
		now = "The worker has unlinked it."
	}
	return OldEntry{
		At: e.FoundAt, Key: e.Key, Tag: "stale entry", Row: e.Row,
		Says: "It survived its UNLINK" + during + ". " + now + " Look for a program that stores values without package cache: docs/operations.md#a-stale-entry",
	}
}

func newDifference(d maintenance.ShadowStored) OldEntry {
	f := OldEntry{At: d.At, Key: d.Key, Tag: "old value", lease: d.Lease, Says: "The database has another value, although the key was unlinked."}
	if d.Outcome == maintenance.NoRow {
		f.Tag, f.Says = "forgotten row", "The database has another value, and no row has named the key since "+d.Lease.UTC().Format(time.DateTime)+" UTC."
	}
	if len(d.Entities) > 0 {
		f.Says += " Rows of " + strings.Join(d.Entities, ", ") + " reach it."
	}
	f.Says += " Process " + d.Process + " noticed it. What to do: " + d.Fix()
	return f
}
