package verdict

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// renumber is the fix for a table whose IDs run out.
const renumber = "docs/maintenance.md#ids-that-run-out"

// ids: an insert has chosen a high ID, which leaves few or none. Writes that fail leave nothing stale,
// but nobody knows of writes that went on without their row.
func (j judge) ids() (list []Cause) {
	for _, table := range slices.Sorted(maps.Keys(j.s.IDsLeft)) {
		switch left := j.s.IDsLeft[table]; {
		case left == 0:
			list = append(list, Cause{"no_ids_left", Unknown, time.Time{},
				"table " + table + " has no ID left, so every insert into it fails (1467), and the write that the row belongs to fails with it", renumber})
		case left < store.FewIDs:
			list = append(list, Cause{"few_ids_left", Fresh, time.Time{},
				fmt.Sprintf("an insert into table %s has chosen a high ID: %d are left, and then every insert fails", table, left), renumber})
		}
	}
	return list
}
