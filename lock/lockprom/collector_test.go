package lockprom_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/lockprom"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The metrics equal the fields of Statistics, pass the linter of Prometheus, and are all
// documented. Several Lockers can be registered.
func TestCollector(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testenv.OwnRedis(t).Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"one", "other"} {
		l, err := lock.New(lock.Config{Backend: lock.Redis{Client: client}, TTL: 10 * time.Minute, Timeout: 10 * time.Second})
		testenv.Must(t, err)
		defer func() { testenv.Must(t, l.Close()) }()
		registry.MustRegister(lockprom.New(l, prometheus.Labels{"locks": name}))
		if name == "other" {
			continue
		}
		lost, err := l.Acquire(t.Context(), "lost")
		testenv.Must(t, err)
		testenv.Must(t, client.Del(t.Context(), "lock:{lost}").Err())
		if lost.Release() == nil {
			t.Error("it is not lost")
		}
		_, err = l.Acquire(t.Context(), "held")
		testenv.Must(t, err)
		if _, err = l.TryAcquire(t.Context(), "held"); err == nil {
			t.Error("it is not held")
		}
	}
	want := `
# HELP unstale_lock_acquisitions_total Acquisitions that were asked for, by their outcome.
# TYPE unstale_lock_acquisitions_total counter
unstale_lock_acquisitions_total{locks="one",result="acquired"} 2
unstale_lock_acquisitions_total{locks="one",result="failed"} 0
unstale_lock_acquisitions_total{locks="one",result="guard_open"} 0
unstale_lock_acquisitions_total{locks="one",result="held"} 1
unstale_lock_acquisitions_total{locks="other",result="acquired"} 0
unstale_lock_acquisitions_total{locks="other",result="failed"} 0
unstale_lock_acquisitions_total{locks="other",result="guard_open"} 0
unstale_lock_acquisitions_total{locks="other",result="held"} 0
# HELP unstale_lock_holding Locks that this process holds now.
# TYPE unstale_lock_holding gauge
unstale_lock_holding{locks="one"} 1
unstale_lock_holding{locks="other"} 0
# HELP unstale_lock_lost_total Acquired locks that were lost before they were released.
# TYPE unstale_lock_lost_total counter
unstale_lock_lost_total{locks="one"} 1
unstale_lock_lost_total{locks="other"} 0
# HELP unstale_lock_overruns_total Sections that continued after their context had ended.
# TYPE unstale_lock_overruns_total counter
unstale_lock_overruns_total{locks="one"} 0
unstale_lock_overruns_total{locks="other"} 0
# HELP unstale_lock_retries_total Attempts that an unavailable server failed, and that Acquire repeated.
# TYPE unstale_lock_retries_total counter
unstale_lock_retries_total{locks="one"} 0
unstale_lock_retries_total{locks="other"} 0
# HELP unstale_lock_unconfirmed_total Locks whose release the backend has not confirmed in time.
# TYPE unstale_lock_unconfirmed_total counter
unstale_lock_unconfirmed_total{locks="one"} 0
unstale_lock_unconfirmed_total{locks="other"} 0
`
	text := scrape(registry)
	for part := range strings.SplitSeq(want[1:], "# HELP") {
		if !strings.Contains(text, part) {
			t.Errorf("wanted %s in\n%s", part, text)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families, err := registry.Gather()
	testenv.Must(t, err)
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
		for _, m := range family.Metric {
			if h := m.GetHistogram(); h != nil && m.Label[0].GetValue() == "one" {
				counts := map[string]uint64{"unstale_lock_wait_seconds": 2, "unstale_lock_hold_seconds": 1, "unstale_lock_mint_seconds": 0}
				if n := counts[family.GetName()]; h.GetSampleCount() != n || len(h.Bucket) != 10 || (h.GetSampleSum() > 0) != (n > 0) || h.Bucket[9].GetUpperBound() != 262.144 {
					t.Errorf("%s: %v", family.GetName(), h)
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/locks.md")
	testenv.Must(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(unstale_lock_\\w+)").FindAllSubmatch(page, -1) {
		listed = append(listed, string(m[1]))
	}
	slices.Sort(listed)
	if fmt.Sprint(listed) != fmt.Sprint(names) {
		t.Errorf("docs/locks.md lists %q, there are %q", listed, names)
	}
}

// scrape returns what Prometheus gets.
func scrape(r *prometheus.Registry) string {
	to := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(to, httptest.NewRequest("GET", "/metrics", nil))
	return to.Body.String()
}
