package worker

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A batch offers as many different keys as it is asked for, of different entities if it has them,
// and none of a row that was not applied in full.
func TestPick(t *testing.T) {
	t.Parallel()
	b := &batch{}
	row := func(entity string, spoil func(*change)) {
		i := len(b.set.Targets)
		b.set.Targets = append(b.set.Targets, keyspace.Target{Key: fmt.Sprint(entity, ":", i)})
		claimed := &store.ClaimedRow{}
		claimed.Entity = entity
		b.changes = append(b.changes, change{row: claimed, targets: []int{i}})
		if spoil != nil {
			spoil(&b.changes[len(b.changes)-1])
		}
	}
	for range 50 {
		row("many", nil)
	}
	for n, least := range map[int]int{12: 12, 40: 36, 60: 46} { // of 96, 320 and 400 tries at random
		for range 200 {
			keys := map[string]bool{}
			for _, k := range b.pick(n) {
				keys[k.Key] = true
			}
			if len(keys) < least || len(keys) > n {
				t.Fatalf("%d keys of %d", len(keys), n)
			}
		}
	}
	for range 50 {
		row("other", nil)
	}
	both := 0
	for range 200 {
		entities := map[string]bool{}
		for _, k := range b.pick(2) {
			entities[k.Entity] = true
		}
		if len(entities) == 2 {
			both++
		}
	}
	if both < 120 { // three quarters; without a preference it is half
		t.Errorf("%d of 200 have both entities", both)
	}
	b = &batch{}
	row("bad", func(c *change) { c.fault = &invalidation.RowError{} })
	row("away", func(c *change) { c.away = fmt.Errorf("away") })
	row("none", func(c *change) { c.targets = nil })
	if keys := b.pick(10); len(keys) > 0 {
		t.Errorf("%+v", keys)
	}
}
