package limit_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// An attempt beside the floor, which is an INCR by the same client. A refused one is what an
// attacker costs.
func BenchmarkTake(b *testing.B) {
	client := clientAt(b, testenv.Redis(b).URL)
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			testenv.Must(b, client.Incr(b.Context(), "floor").Err())
		}
	})
	for name, most := range map[string]int{"exact_refused": 5, "exact_full_refused": 20, "counted_allowed": 1_000_000_000} {
		l := newLimiter(b, limit.Config{Redis: client, Max: most, Window: time.Hour, Prefix: name + ":"})
		for range 100 {
			take(b, l, "s")
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				take(b, l, "s")
			}
		})
	}
}
