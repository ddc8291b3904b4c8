package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// staleCauses returns the causes of stale entries that spot checks found. Those that are gone are
// a note for an hour: their writer may store more.
func staleCauses(s store.Status) []Cause {
	const cure = "find what stores them: docs/operations.md#a-stale-entry"
	n := s.StaleEntries
	found := "spot checks found 1 stale entry within an hour, which is gone"
	if n.Hour > 1 {
		found = fmt.Sprintf("spot checks found %d stale entries within an hour, which are gone", n.Hour)
	}
	switch present, unread := are(s.Left, store.Present), are(s.Left, store.Unread); {
	case s.StaleEntriesError != nil:
		return []Cause{{"stale_entries_unread", Fresh, time.Time{}, "the stale entries that spot checks found cannot be read: " + firstLine(s.StaleEntriesError.Error()), "docs/accounts.md#mysql"}}
	case len(present) > 0:
		return []Cause{{"stale_entries", Stale, since(present), "the entry of " + first(present) + " survived an UNLINK and is still in Redis" + others(present), cure}}
	case len(unread) > 0:
		return []Cause{{"stale_entries", Stale, since(unread), "the entry of " + first(unread) + " survived an UNLINK and may be in Redis until its TTL ends" + others(unread), cure}}
	case n.Hour > 0:
		return []Cause{{"stale_entries", Fresh, time.Time{}, found, cure}}
	}
	return nil
}

// differenceCauses returns the causes of cached values that shadow reads found to differ although no row
// explains it. Those that are gone are a note for 24 hours.
func differenceCauses(s store.Status) []Cause {
	const cure = "unstale map who KEY; docs/operations.md#differences"
	found := s.Differences
	if err := s.OldEntriesError; err != nil && len(found) == 0 {
		return []Cause{{"differences_unread", Fresh, time.Time{}, "cached values that differ from the database cannot be read: " + firstLine(err.Error()), "docs/accounts.md"}}
	}
	if len(found) == 0 {
		return nil
	}
	switch present, unread := are(found, store.Present), are(found, store.Unread); {
	case len(present) > 0:
		return []Cause{{"differs", Stale, since(present), "the cached value of " + first(present) + " differs from the database, and no row explains it" + others(present), cure}}
	case len(unread) > 0 && s.OldEntriesError != nil:
		return []Cause{{"differs", Unknown, since(unread), "whether Redis still has values that differed from the database is unknown: " + firstLine(s.OldEntriesError.Error()), cure}}
	case found[0].Count > 0:
		return []Cause{{"differs", Fresh, time.Time{}, count(found[0].Count, "cached value") + " differed from the database in the last 24 hours, the last: " + keyName(found[0].Key), cure}}
	}
	return nil
}

// are returns the entries with a state.
func are(list []store.OldEntry, p store.EntryState) []store.OldEntry {
	return slices.DeleteFunc(slices.Clone(list), func(e store.OldEntry) bool { return e.State != p })
}

// since returns when the first of the entries was found. The newest come first.
func since(list []store.OldEntry) time.Time { return list[len(list)-1].At }

// first names the key of the entry that was found first, and others counts the others.
func first(list []store.OldEntry) string { return keyName(list[len(list)-1].Key) }

func others(list []store.OldEntry) string {
	switch n := len(list) - 1; {
	case n == 0:
		return ""
	case len(list) == store.MaxOldEntries:
		return fmt.Sprintf(", and at least %d others too", n)
	default:
		return ", and " + count(n, "other") + " too"
	}
}

// keyName returns a key, quoted if it has characters that do not show.
func keyName(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}
