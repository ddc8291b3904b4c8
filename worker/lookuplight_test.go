package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A batch of light rows sets rows aside whose lookups find too much for it, and answers the others.
// When it has given up so many answers, the rows behind stay in the table.
func TestLightBatchGivesUpHeavyAnswers(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte("version: 1\n"+
		"params: {found: {lookup: {by: [id], sql: \"SELECT id, v FROM t WHERE id IN (?)\"}}}\n"+
		"entities: {found: {params: [found], keys: [\"x:{found}\"]}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ every, kept, aside int }{
		{25, 96, 4},       // one row of 25 is heavy
		{1, 0, maxHeavy},  // all are
		{2, 31, maxHeavy}, // half are
	} {
		rows := make([]store.ClaimedRow, 100)
		for i := range rows {
			id := uint64(i + 1)
			rows[i] = store.ClaimedRow{ID: id, FirstID: id, Entity: "found", EntityID: fmt.Sprint(i)}
		}
		isHeavy := func(id string) bool {
			var n int
			_, _ = fmt.Sscan(id, &n)
			return n%c.every == 0
		}
		b := newBatch(m, rows, budget{params: batchDecoded, light: true})
		answers, err := b.resolve(t.Context(), func(_ context.Context, _ string, by [][]string, _ int) (found [][]string, err error) {
			for _, b := range by {
				if isHeavy(b[0]) {
					return nil, &session.LookupManyError{Rows: 1, Bytes: 1}
				}
				found = append(found, []string{b[0], "v"})
			}
			return found, nil
		}, 50_000, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.changes) != c.kept || len(b.aside) != c.aside {
			t.Errorf("one of %d is heavy: %d rows are kept and %d aside, wanted %d and %d", c.every, len(b.changes), len(b.aside), c.kept, c.aside)
		}
		for i := range b.changes {
			ch := &b.changes[i]
			if plan, err := m.Expand(ch.decoded, answers); isHeavy(ch.row.EntityID) || ch.fault != nil || err != nil || plan.Len() != 1 || slices.Contains(b.aside, ch.row.ID) {
				t.Errorf("row %s: %v, %v, %v", ch.row.EntityID, ch.fault, plan, err)
			}
		}
	}
}
