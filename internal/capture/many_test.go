package capture

import (
	"fmt"
	"testing"
)

// The work of a comparison grows with the number of triggers, and not with its square.
func TestCompareManyTriggers(t *testing.T) {
	allocations := func(n int) float64 {
		var wanted []Trigger
		var existing []Existing
		for i := range n {
			w := newTrigger(fmt.Sprint("table", i), "AFTER", "INSERT", []string{"  DO 1;\n"})
			wanted = append(wanted, w)
			have := Existing{Trigger: w, Name: w.Name(1)}
			have.Table = "moved"
			existing = append(existing, have)
		}
		return testing.AllocsPerRun(1, func() {
			if err := readOriginals(t.Context(), nil, existing, wanted); err != nil {
				t.Error(err)
			}
			if got := compare(wanted, existing, nil, Account{}, nil); len(got) != 2*n || got[n].State != RenamedAway {
				t.Errorf("%d changes", len(got))
			}
		})
	}
	if few, many := allocations(100), allocations(200); many > 3*few {
		t.Errorf("%.0f allocations for 200 triggers, but %.0f for 100", many, few)
	}
}
