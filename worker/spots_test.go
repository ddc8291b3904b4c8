package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A worker finds an entry from before an UNLINK, unlinks it, announces that, and keeps it for
// operators. It does not check if that is off.
func TestSpotChecks(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{0, -1} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, plainMap)
			w.onOwnRedis()
			log := &logBuffer{}
			stop := w.runWith(worker.Config{SpotChecks: rate}, w.url, log)
			defer func() { stop() }()
			rows := 0
			// as a reader does that ignores its lease
			refill := func() bool {
				rows++
				key := fmt.Sprint("shop:thing:", rows)
				w.enqueue(outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(rows)})
				testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 })
				text := fmt.Sprintf(`{"e":%d,"b":%d,"v":1}`, time.Now().Add(time.Hour).UnixMilli(), time.Now().Add(-time.Minute).UnixMicro())
				if err := w.redis.Set(t.Context(), key, text, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				return w.count("cache_outbox_stale") > 0
			}
			if rate < 0 {
				refill()
				stop()
				if n := w.redis.Exists(t.Context(), "shop:thing:1").Val(); n != 1 || strings.Contains(log.String(), "stale entry") {
					t.Errorf("%d: %s", n, log)
				}
				stop = func() {}
				return
			}
			testenv.Eventually(t, "the entry is found", refill)
			var key string
			var repaired bool
			if err := w.db.QueryRowContext(t.Context(), "SELECT name, repaired FROM cache_outbox_stale ORDER BY id LIMIT 1").Scan(&key, &repaired); err != nil {
				t.Fatal(err)
			}
			if !repaired || w.redis.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%s is still there", key)
			}
			for _, want := range []string{`msg="stale entry"`, "key=" + key, "entity=thing", "repaired=true"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("%s is missing: %s", want, log)
				}
			}
			testenv.Eventually(t, "the counts", func() bool {
				var stale int
				if err := w.db.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(stale), 0) FROM cache_outbox_minutes").Scan(&stale); err != nil {
					t.Fatal(err)
				}
				return stale > 0
			})
			began := time.Now()
			stop()
			stop = func() {}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
