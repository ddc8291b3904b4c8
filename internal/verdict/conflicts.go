package verdict

import (
	"time"

	"github.com/unstale/unstale/internal/operate"
)

// conflictCauses returns the causes that workers' records in Redis show. Databases may share names
// on purpose.
func conflictCauses(conflicts []operate.Conflict, unread error) (list []Cause) {
	for _, c := range conflicts {
		level := map[operate.ConflictKind]Level{operate.ConflictRestored: Stale, operate.ConflictID: Unknown, operate.ConflictNames: Fresh}[c.Kind]
		name := map[operate.ConflictKind]string{operate.ConflictRestored: "restored", operate.ConflictID: "one_id", operate.ConflictNames: "same_names"}[c.Kind]
		list = append(list, Cause{name, level, time.Time{}, c.Text, c.Cure})
	}
	if unread != nil {
		list = append(list, Cause{"conflicts_unread", Fresh, time.Time{},
			"whether other databases share this Redis cannot be read: " + firstLine(unread.Error()), "docs/accounts.md#redis"})
	}
	return list
}
