package verdict

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/operate"
)

// staleCauses returns the cause of stale entries of the last hour. Those that a worker has unlinked
// are a note: their writer may store more.
func staleCauses(s operate.Status) []Cause {
	const cure = "find what stores them: docs/operations.md#a-stale-entry"
	n := s.StaleEntries
	switch {
	case s.StaleEntriesError != nil:
		return []Cause{{"stale_entries_unread", Fresh, time.Time{}, "the stale entries that spot checks found cannot be read: " + firstLine(s.StaleEntriesError.Error()), "docs/accounts.md#mysql"}}
	case n.Left > 0:
		return []Cause{{"stale_entries", Stale, time.Time{}, fmt.Sprintf("%s, and %d of them may be there until the TTL", entries(n.Hour), n.Left), cure}}
	case n.Hour > 0:
		return []Cause{{"stale_entries", Fresh, time.Time{}, entries(n.Hour) + ", which workers have unlinked again", cure}}
	}
	return nil
}

func entries(n int) string {
	if n == 1 {
		return "spot checks found 1 stale entry within an hour"
	}
	return fmt.Sprintf("spot checks found %d stale entries within an hour", n)
}
