package limit_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// A key outlives the time in which its attempts count, since Redis expires keys by a coarser and
// earlier reading of its clock than that of the attempts.
func TestKeptWhileItCounts(t *testing.T) {
	t.Parallel()
	const window, key = time.Hour, "zahraah:limit:s"
	for form, counts := range map[string]time.Duration{"exact": window, "counted": 2 * window} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			take(t, newLimiter(t, limit.Config{Redis: client, Max: forms[form], Window: window}), "s")
			var attempt float64
			if form == "exact" {
				attempt = client.ZRangeWithScores(t.Context(), key, 0, 0).Val()[0].Score
			} else {
				attempt = math.Float64frombits(binary.BigEndian.Uint64([]byte(client.Get(t.Context(), key).Val())))
			}
			tx := client.TxPipeline()
			now, left := tx.Time(t.Context()), tx.PTTL(t.Context(), key)
			_, err := tx.Exec(t.Context())
			testenv.Must(t, err)
			if kept := now.Val().Add(left.Val()).Sub(time.UnixMicro(int64(attempt))); kept < counts+time.Second/2 {
				t.Errorf("an attempt that counts for %v is kept for %v", counts, kept)
			}
		})
	}
}
