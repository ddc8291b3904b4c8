package store_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// A minute of a worker: its batches, and how many of them are sampled, one key each.
type stratum struct{ batches, sampled, withEntry, stale uint64 }

// sums returns the sums that the database has for strata.
func sums(list ...stratum) (s store.Sums) {
	for _, m := range list {
		w := float64(m.batches) / float64(m.sampled)
		s.WSampled += w * float64(m.sampled)
		s.WKnown += w * float64(m.sampled)
		s.WEntryBatches += w * float64(m.withEntry)
		s.WWithEntry += w * float64(m.withEntry)
		s.WStaleBatches += w * float64(m.stale)
		s.WStale += w * float64(m.stale)
		s.WWSampled += w * w * float64(m.sampled)
		s.WWEntryBatches += w * w * float64(m.withEntry)
	}
	return s
}

// Known answers. A minute counts by its batches, not by how many of them are sampled.
func TestEstimates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strata                                   []stratum
		perEntry, below, perInvalidation, belowI float64
	}{
		"nothing":                        {nil, math.NaN(), 1, math.NaN(), 1},
		"none of 3000":                   {[]stratum{{3000, 3000, 3000, 0}}, 0, 0.001, 0, 0.001},
		"few have an entry":              {[]stratum{{3000, 3000, 300, 0}}, 0, 0.01, 0, 0.001},
		"a sample is as good":            {[]stratum{{9e6, 3000, 3000, 0}}, 0, 0.001, 0, 0.001},
		"a quiet minute weighs little":   {[]stratum{{9900, 100, 100, 1}, {100, 100, 100, 100}}, 0.0199, 0.0627, 0.0199, 0.0627},
		"a quiet minute adds no batches": {[]stratum{{1e6, 3000, 3000, 0}, {100, 100, 100, 0}}, 0, 0.001, 0, 0.001},
		"absent is not stale":            {[]stratum{{1000, 1000, 100, 10}}, 0.1, 0.172, 0.01, 0.0172},
		"all":                            {[]stratum{{10, 10, 10, 10}}, 1, 1, 1, 1},
	} {
		s := sums(c.strata...)
		for i, got := range []store.Estimate{s.StalePerEntry(), s.StalePerInvalidation()} {
			share, below := c.perEntry, c.below
			if i == 1 {
				share, below = c.perInvalidation, c.belowI
			}
			if !near(got.Share, share) || !near(got.Below, below) {
				t.Errorf("%s: %+v, wanted %g below %g", name, got, share, below)
			}
		}
	}
}

func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 0.03*math.Abs(b)
}

// The bound holds in at least 95% of all samples, whether staleness is rare or not, and whether it
// is in busy minutes or in quiet ones. The estimate is right on average.
func TestCoverageOfTheBound(t *testing.T) {
	t.Parallel()
	const runs, most = 2000, 50
	for name, rate := range map[string]func(batches uint64) float64{
		"rare":       func(uint64) float64 { return 0.001 },
		"frequent":   func(uint64) float64 { return 0.05 },
		"when busy":  func(n uint64) float64 { return 0.00002 * float64(n) },
		"when quiet": func(n uint64) float64 { return 1 / float64(n) },
	} {
		random := rand.New(rand.NewPCG(1, 2))
		held, total, truth := 0, 0.0, 0.0
		for range runs {
			var list []stratum
			batches, stale := 0.0, 0.0
			for range 30 {
				m := stratum{batches: 10 + random.Uint64N(500)}
				m.sampled = min(m.batches, most)
				m.withEntry = m.sampled
				p := rate(m.batches)
				for range m.sampled {
					if random.Float64() < p {
						m.stale++
					}
				}
				list = append(list, m)
				batches, stale = batches+float64(m.batches), stale+p*float64(m.batches)
			}
			s := sums(list...)
			e := s.StalePerEntry()
			total, truth = total+e.Share, truth+stale/batches
			if stale/batches <= e.Below {
				held++
			}
		}
		if held < runs*95/100 {
			t.Errorf("%s: the bound held in %d of %d", name, held, runs)
		}
		if math.Abs(total-truth) > 0.05*truth {
			t.Errorf("%s: %g on average, truth %g", name, total/runs, truth/runs)
		}
		t.Logf("%s: the bound held in %.1f%%", name, float64(held)*100/runs)
	}
}
