//go:build soak

package capture_test

import (
	"slices"
	"testing"
)

// The long form of TestRandomWrites.
func TestManyRandomWrites(t *testing.T) {
	t.Parallel()
	randomWrites(t, false, 5000, 200)
}

func TestManyRandomWritesInCycles(t *testing.T) {
	t.Parallel()
	randomWrites(t, true, 5000, 200)
}

// Each planted fault is found by several seeds of the first ones.
func TestSeedsOfFaults(t *testing.T) {
	t.Parallel()
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newRandomShop(t, p.cycles)
			var seeds []uint64
			s.trials(upTo(100, p.cycles), 60, p.in, func(tr *trial, miss string) bool {
				if miss != "" {
					seeds = append(seeds, tr.seed)
				}
				return len(seeds) < 5
			})
			t.Logf("found by the seeds %v", seeds)
			if len(seeds) == 0 || len(p.seeds) > 0 && !slices.ContainsFunc(seeds, func(seed uint64) bool { return slices.Contains(p.seeds, seed) }) {
				t.Errorf("not found by one of %v", p.seeds)
			}
		})
	}
}
