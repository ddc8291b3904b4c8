package cache

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Each call that finds a value in L1 draws: the probability of an early refresh is that of XFetch,
// for any time that is left. The time that the test takes does not matter: it is short compared with a day.
func TestEarlyRefreshInMemoryIsTheFormulas(t *testing.T) {
	t.Parallel()
	config := Config{Memory: Memory{Size: 10, TTL: longestTTL}}.WithDefaults()
	m := newMemory(config)
	t.Cleanup(m.close)
	m.obey(verdict{open: true})
	c := &Cache{config: config, memory: m, luck: rand.New(rand.NewPCG(44, 44)).ExpFloat64}
	const calls, day = 10_000, 24 * time.Hour
	for _, left := range []time.Duration{day / 4, day, 3 * day, 7 * day} {
		for _, beta := range []float64{0, 0.5, 1, 2} {
			p := MustPolicy(Options{TTL: 30 * day, EarlyRefresh: beta})
			if !m.put("k", "v", nil, m.mark(), left, day.Milliseconds(), nil) {
				t.Fatal("the value is not kept")
			}
			due := 0
			for range calls {
				if _, ok := inMemory[string](c, "k", p, c.eagerness(p)); !ok {
					due++
				}
			}
			want := math.Exp(-float64(left) / float64(day) / beta)
			if got, tolerance := float64(due)/calls, 4*math.Sqrt(want*(1-want)/calls)+0.001; math.Abs(got-want) > tolerance {
				t.Errorf("%v left, beta %v: a probability of %v, want %v +-%v", left, beta, got, want, tolerance)
			}
		}
	}
}
