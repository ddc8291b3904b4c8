package verdict

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// conflicts: what workers' records in Redis show. Databases that share names may do so on purpose.
func (j judge) conflicts() (list []Cause) {
	for _, c := range j.s.Conflicts {
		level := map[store.ConflictKind]Level{store.ConflictRestored: Stale, store.ConflictID: Unknown, store.ConflictNames: Fresh}[c.Kind]
		name := map[store.ConflictKind]string{store.ConflictRestored: "restored", store.ConflictID: "one_id", store.ConflictNames: "same_names"}[c.Kind]
		list = append(list, Cause{name, level, time.Time{}, c.Text, c.Cure})
	}
	if err := j.s.ConflictsError; err != nil {
		list = append(list, Cause{"conflicts_unread", Fresh, time.Time{},
			"whether other databases share this Redis cannot be read: " + firstLine(err.Error()), "docs/accounts.md#redis"})
	}
	return list
}
