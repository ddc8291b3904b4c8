package status

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// conflictCauses returns the causes that workers' records in Redis show. Databases may share names
// on purpose.
func conflictCauses(conflicts []store.Conflict, unread error) (list []Cause) {
	for _, c := range conflicts {
		level := map[store.ConflictKind]Level{store.ConflictRestored: Stale, store.ConflictID: Unknown, store.ConflictNames: Fresh}[c.Kind]
		name := map[store.ConflictKind]string{store.ConflictRestored: "restored", store.ConflictID: "one_id", store.ConflictNames: "same_names"}[c.Kind]
		list = append(list, Cause{name, level, time.Time{}, c.Text, c.Cure})
	}
	if unread != nil {
		list = append(list, Cause{"conflicts_unread", Fresh, time.Time{},
			"whether other databases share this Redis cannot be read: " + firstLine(unread.Error()), "docs/accounts.md#redis"})
	}
	return list
}
