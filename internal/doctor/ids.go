package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/unstale/unstale/internal/store"
)

// ids finds tables whose IDs run out because an insert has chosen a high one.
func ids(ctx context.Context, e *Exam) (all []Finding, err error) {
	tables, err := store.NewOverview(e.MySQL).IDsLeft(ctx)
	if err != nil {
		return nil, err
	}
	const cure = "docs/operations.md, IDs that run out"
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		switch left := tables[table]; {
		case left == 0:
			all = append(all, found(Critical, "table "+table+" has no ID left, so every insert into it fails (1467), and the write that the row belongs to fails with it",
				"AUTO_INCREMENT of the table is at its end", cure))
		case left < store.FewIDs:
			all = append(all, found(Warning, "an insert into table "+table+" has chosen a high ID, so its IDs run out", fmt.Sprintf("%d IDs are left", left), cure))
		}
	}
	if len(all) == 0 {
		all = append(all, well("no insert has chosen a high ID, so IDs do not run out"))
	}
	return all, nil
}
