package doctor_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/redisclient"
)

// testHitRatio: the misses of a client are a warning. Those of spot checks are not, nor are those of
// a reader of package cache, since Redis counts five for one.
func testHitRatio(w *testbed) {
	t := w.t
	t.Helper()
	const title, misses = "the hit ratio is low", 10_000
	w.do("config resetstat")
	pipe := w.admin.Pipeline()
	for n := range misses {
		pipe.Get(t.Context(), fmt.Sprint("zahraah:nothing:", n))
	}
	_, _ = pipe.Exec(t.Context()) // none of them exists
	if f := find(w.examine("redis-memory"), "redis-memory", title); f == nil || f.Severity != doctor.Warning {
		t.Errorf("%d misses of a client: %+v", misses, w.examine("redis-memory"))
	}
	w.do("config resetstat")
	pipe = w.admin.Pipeline()
	for n := range misses {
		pipe.GetRange(t.Context(), fmt.Sprint("zahraah:nothing:", n), 0, keyspace.HeadBytes-1)
	}
	_, _ = pipe.Exec(t.Context())
	if f := find(w.examine("redis-memory"), "redis-memory", title); f != nil {
		t.Errorf("%d misses of spot checks: %+v", misses, f)
	}
	reader, err := cache.New(cache.Config{Redis: w.admin, Prefix: "zahraah:new:", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	w.do("config resetstat")
	const readers, fetches = 8, misses / 4
	var group sync.WaitGroup
	for r := range readers {
		group.Go(func() {
			for n := range fetches / readers {
				_, err := cache.Fetch(t.Context(), reader, fmt.Sprint(r, "-", n), func(context.Context) (string, error) { return "value", nil }, nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	stats, err := w.admin.Info(t.Context(), "stats").Result()
	counted, failed := strconv.Atoi(redisclient.Facts(stats)["keyspace_misses"])
	// five each, except those that the load cut short
	if err != nil || failed != nil || counted < 4*fetches {
		t.Errorf("%d misses of Fetch are %d of Redis: %v, %v", fetches, counted, err, failed)
	}
	if all := w.examine("redis-memory"); len(all) != 1 || all[0].Severity != doctor.OK || !strings.Contains(all[0].Title, "unstale_cache_requests_total") {
		t.Errorf("%d misses of a reader: %+v", fetches, all)
	}
	w.do("config resetstat")
	w.flush(0)
}
