package invalidation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// A long value beside a long list is refused before anything is built of it.
func TestExpandBoundsBytes(t *testing.T) {
	t.Parallel()
	m, err := invalidation.Parse("map.yaml", []byte("version: 1\nentities: {e: {params: [a, n], keys: [\"{id}:{a}:{n}\"]}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	row := func(n int) invalidation.Row {
		numbers := make([]string, n)
		for i := range numbers {
			numbers[i] = fmt.Sprint(1000 + i)
		}
		return invalidation.Row{Entity: "e", ID: "1", Params: invalidation.Params{
			{Name: "a", Values: []string{strings.Repeat("x", 32<<10)}}, {Name: "n", Values: numbers},
		}}
	}
	plan, err := m.Expand(row(500), nil)
	if err != nil || len(plan.Keys) != 500 {
		t.Errorf("%d keys, %v", len(plan.Keys), err)
	}
	var fault *invalidation.RowError
	_, err = m.Expand(row(520), nil)
	if !errors.As(err, &fault) || fault.Reason != invalidation.TooManyKeys || err.Error() != "too_many_keys: the keys of the row have more than 16777216 bytes together" {
		t.Errorf("got %v", err)
	}
}
