package invalidation_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// productMap forms a product of {a} and {n} in every place where a map can.
const productMap = `
version: 1
params:
  found:  {lookup: {by: [a, n], sql: "SELECT a, n, v FROM t WHERE (a, n) IN (?)"}}
  byid:   {lookup: {by: [id, a], sql: "SELECT a, n, v FROM t WHERE (a, n) IN (?)"}}
entities:
  keys:     {params: [a, n], keys: ["{id}:{a}:{n}"]}
  patterns: {params: [a, n], patterns: ["shop:{id}:{a}:{n}:*"]}
  sets:     {params: [a, n], sets: ["set:{id}:{a}:{n}"]}
  tags:     {params: [a, n], tags: ["tag:{id}:{a}:{n}"]}
  each:     {params: [a], each: {page: 1..5500}, keys: ["{id}:{a}:{page}"]}
  lookup:   {params: [a, n, found], keys: ["{found}"]}
  as:       {params: [a, n], as: {plain: "{a}{n}"}}
  often:    {params: [a, n], as: {twice: "{n}"}}
  twice:    {params: [a], as: {plain: "{a}"}}
  plain:    {keys: ["plain"]}
  asks:     {params: [a, n], as: {asked: "{n}"}}
  asked:    {params: [a, byid], keys: ["{byid}"]}
  wide:     {params: [n, m, p], as: {many: "{n}:{m}"}}
  many:     {params: [p], as: {last: "{p}"}}
  last:     {keys: ["last"]}
`

func hostile(entity string, n int) invalidation.Row {
	return invalidation.Row{Entity: entity, ID: "1", Params: invalidation.Params{
		{Name: "a", Values: []string{strings.Repeat("x", 32<<10)}}, {Name: "n", Values: thousands(n), List: true},
	}}
}

func thousands(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(1000 + i)
	}
	return list
}

// heap returns the result of fn and how many bytes it allocated.
func heap(fn func() error) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// A long value combined with a long list, in 64 KiB of parameters, is refused before anything is
// built from it, in every place where the map forms the product. Not parallel, since allocations
// are counted for the whole process.
func TestProductsAreBoundedInBytes(t *testing.T) {
	m := mustParse(t, productMap)
	for _, entity := range []string{"keys", "patterns", "sets", "tags", "each", "lookup", "as", "often", "asks"} {
		row := hostile(entity, 5500)
		bytes, err := heap(func() error {
			if _, err := m.Needs(row, nil); err != nil {
				return err
			}
			_, err := m.Expand(row, nil)
			return err
		})
		var fault *invalidation.RowError
		if !errors.As(err, &fault) || fault.Reason != invalidation.TooManyKeys ||
			!strings.Contains(err.Error(), " bytes") || !strings.Contains(err.Error(), "write shorter values, or rows with fewer of them") {
			t.Errorf("%s: got %.200v", entity, err)
		}
		// If IDs are derived from IDs, up to 8 MiB of them are made before they are too many.
		if limit := uint64(1 << 20); bytes > limit && entity != "often" && entity != "asks" || bytes > 40<<20 {
			t.Errorf("%s: %d KiB were allocated for 64 KiB of parameters", entity, bytes>>10)
		}
	}
}

// The entities that a row expands as keep no memory: they are visited one by one.
func TestAllocationsOfManyScopes(t *testing.T) {
	m := mustParse(t, productMap)
	row := invalidation.Row{Entity: "wide", ID: "1", Params: invalidation.Params{
		{Name: "n", Values: thousands(100)}, {Name: "m", Values: thousands(90)}, {Name: "p", Values: thousands(10)},
	}}
	bytes, err := heap(func() error {
		plan, err := m.Expand(row, nil)
		if err == nil && len(plan.Keys) != 1 {
			t.Errorf("%q", plan.Keys)
		}
		return err
	})
	const scopes = 1 + 9000 + 9000*10
	if err == nil || !strings.Contains(err.Error(), "10000 keys") {
		t.Errorf("%d scopes, %v", scopes, err)
	}
	if bytes > 8<<20 {
		t.Errorf("%d KiB for %d scopes", bytes>>10, scopes)
	}
}

// A plan that is just within the limit is built.
func TestExpandWithinTheLimit(t *testing.T) {
	t.Parallel()
	m := mustParse(t, productMap)
	for entity, most := range map[string]int{"keys": 240, "patterns": 240, "sets": 240, "tags": 240, "as": 240} {
		if plan, err := m.Expand(hostile(entity, most), nil); err != nil || plan.Len() == 0 {
			t.Errorf("%s: %d, %v", entity, plan.Len(), err)
		}
		if _, err := m.Expand(hostile(entity, most+20), nil); err == nil {
			t.Errorf("%s: not refused", entity)
		}
	}
	if needs, err := m.Needs(hostile("lookup", 120), nil); err != nil || len(needs) != 120 {
		t.Errorf("%d questions, %v", len(needs), err)
	}
	if _, err := m.Needs(hostile("lookup", 130), nil); err == nil {
		t.Error("not refused")
	}
}
