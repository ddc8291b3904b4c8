package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

const (
	floatsSince = 24 * time.Hour
	floatsLimit = 5 * time.Second // to read the journal
	mostFloats  = 10              // as evidence
)

// floatIDs looks in the journal of the last day for IDs in the notation of a float: of entities that
// have the type int, and of entities without a type that have integers too.
func floatIDs(ctx context.Context, e *Exam) ([]Finding, error) {
	var (
		floats   []string // "entity id"
		ints     = map[string]bool{}
		began    = time.Now()
		complete = true
	)
	visit := func(b store.Batch, entries []store.JournalEntry) error {
		for i := range entries {
			name, id := entries[i].Entity, entries[i].EntityID
			switch {
			case id != "" && strings.Trim(id, "0123456789") == "":
				ints[name] = true
			case invalidation.IsFloat(id):
				floats = append(floats, fmt.Sprintf("%s %q in batch %d of %s", name, id, b.ID, b.SettledAt.Format(time.RFC3339)))
			}
		}
		if complete = time.Since(began) < floatsLimit; !complete || len(floats) >= 1000 {
			return errEnough
		}
		return nil
	}
	err := store.NewJournal(e.MySQL).ReadJournal(ctx, store.JournalQuery{Since: floatsSince}, visit, func(store.DamagedBatch) {})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	reads := e.Map.Reads()
	floats = slices.DeleteFunc(floats, func(float string) bool {
		name, _, _ := strings.Cut(float, " ")
		return !ints[name] && reads.TypeOf(name+"_id") != invalidation.TypeInt
	})
	switch {
	case len(floats) > 0:
		return []Finding{found(Warning, "a driver wrote IDs as floats, so the keys of these rows were not deleted", strings.Join(floats[:min(mostFloats, len(floats))], "\n"),
			"insert IDs as text, then invalidate these objects again: docs/adopting.md#ids-from-drivers")}, nil
	case !complete:
		return []Finding{unseen("whether a driver wrote IDs as floats", errors.New("the journal of the last day was not read within "+floatsLimit.String()), "")}, nil
	}
	return []Finding{well("the journal of the last day has no ID that a driver wrote as a float")}, nil
}
