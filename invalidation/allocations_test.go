package invalidation_test

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// A row allocates only its plan: the list of its keys and each text. The allocations do not grow
// with the map. Not parallel, since allocations are counted for the whole process.
func TestAllocationsOfARow(t *testing.T) {
	lists := invalidation.Params{{Name: "category_id", Values: []string{"7", "9"}, List: true}}
	for _, c := range []struct {
		name string
		row  invalidation.Row
		want float64
	}{
		{"exact key", invalidation.Row{Entity: "coupon", ID: "SUMMER2025"}, 2},
		{"key and two patterns", invalidation.Row{Entity: "product", ID: "12345", Params: lists}, 5},
		{"80 keys", invalidation.Row{Entity: "page", ID: "1", Params: lists}, 84},
	} {
		for _, entities := range []int{0, 10, 1000} {
			m := mustParse(t, benchmarkMap+others(entities))
			got := testing.AllocsPerRun(1000, func() {
				if _, err := m.Expand(c.row, nil); err != nil {
					t.Fatal(err)
				}
			})
			if got != c.want {
				t.Errorf("%s, a map of %d more entities: %v allocations a row, want %v", c.name, entities, got, c.want)
			}
		}
	}
}

func TestAllocationsOfNoParams(t *testing.T) {
	got := testing.AllocsPerRun(1000, func() {
		if _, err := invalidation.ParseParams(nil); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// others are entities that a row is not about, as the end of a map.
func others(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("  other%d: {keys: [\"{app}:{env}:other%d:{id}\", \"{app}:all:{id}\"], patterns: [\"{app}:{env}:other%d:{id}:*\"]}\n", i, i, i)
	}
	return text
}
