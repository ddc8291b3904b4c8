package cacheprom_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cacheprom"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newCache(t *testing.T, config cache.Config) *cache.Cache {
	t.Helper()
	c, err := cache.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// The metrics equal the fields of Statistics and pass the linter of Prometheus.
func TestCollector(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	c := newCache(t, cache.Config{Redis: client, Timeout: 5 * time.Second})
	load := func(context.Context) (string, error) { return "v", nil }
	broken := func(context.Context) (string, error) { return "", errors.New("no database") }
	unwritable := func(context.Context) (chan int, error) { return make(chan int), nil }
	for range 3 {
		_, err := cache.Fetch(t.Context(), c, "k", load, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _ = cache.Fetch(t.Context(), c, "broken", broken, cache.Moderate.After(waiting{}))
	_, _ = cache.Fetch(t.Context(), c, "unwritable", unwritable, nil)
	if err := c.Delete(t.Context(), "k", "k2"); err != nil {
		t.Fatal(err)
	}
	got := cacheprom.New(c, prometheus.Labels{"cache": "products"})
	want := `
# HELP unstale_cache_elsewhere_answers_total Answers of a server or database that the reader's workers do not write to.
# TYPE unstale_cache_elsewhere_answers_total counter
unstale_cache_elsewhere_answers_total{cache="products"} 0
# HELP unstale_cache_fills_total Values that were loaded to be stored, by what became of them.
# TYPE unstale_cache_fills_total counter
unstale_cache_fills_total{cache="products",result="failed"} 1
unstale_cache_fills_total{cache="products",result="refused"} 0
unstale_cache_fills_total{cache="products",result="stored"} 1
# HELP unstale_cache_healthy 1 while values are cached as configured, 0 while Redis is unavailable or L1 is closed.
# TYPE unstale_cache_healthy gauge
unstale_cache_healthy{cache="products"} 1
# HELP unstale_cache_heard_names_total Keys and patterns of messages, by whether they have the configured prefix.
# TYPE unstale_cache_heard_names_total counter
unstale_cache_heard_names_total{cache="products",prefix="other"} 0
unstale_cache_heard_names_total{cache="products",prefix="own"} 0
# HELP unstale_cache_invalidations_total Keys, tags and patterns that were received or deleted here.
# TYPE unstale_cache_invalidations_total counter
unstale_cache_invalidations_total{cache="products"} 2
# HELP unstale_cache_load_errors_total Calls of loaders that failed.
# TYPE unstale_cache_load_errors_total counter
unstale_cache_load_errors_total{cache="products"} 1
# HELP unstale_cache_loads_total Calls of loaders.
# TYPE unstale_cache_loads_total counter
unstale_cache_loads_total{cache="products"} 3
# HELP unstale_cache_memory_evictions_total Values that memory dropped or did not take because it was full.
# TYPE unstale_cache_memory_evictions_total counter
unstale_cache_memory_evictions_total{cache="products"} 0
# HELP unstale_cache_memory_overflows_total Values that memory did not keep, since too much was evicted during their load.
# TYPE unstale_cache_memory_overflows_total counter
unstale_cache_memory_overflows_total{cache="products"} 0
# HELP unstale_cache_memory_values Approximate number of values in process memory (L1).
# TYPE unstale_cache_memory_values gauge
unstale_cache_memory_values{cache="products"} 0
# HELP unstale_cache_old_entries_total Entries read that workers had unlinked before: workers unlink keys elsewhere.
# TYPE unstale_cache_old_entries_total counter
unstale_cache_old_entries_total{cache="products"} 0
# HELP unstale_cache_pattern_errors_total Messages with a pattern that cannot be compiled: each has emptied memory.
# TYPE unstale_cache_pattern_errors_total counter
unstale_cache_pattern_errors_total{cache="products"} 0
# HELP unstale_cache_rejected_messages_total Messages without a valid MAC, or too old: only their keys and patterns were evicted.
# TYPE unstale_cache_rejected_messages_total counter
unstale_cache_rejected_messages_total{cache="products"} 0
# HELP unstale_cache_requests_total Calls for one key, by what answered them.
# TYPE unstale_cache_requests_total counter
unstale_cache_requests_total{cache="products",result="memory"} 0
unstale_cache_requests_total{cache="products",result="miss"} 3
unstale_cache_requests_total{cache="products",result="redis"} 2
# HELP unstale_cache_shadow_reads_total Values of Redis that were compared with their loader, by result.
# TYPE unstale_cache_shadow_reads_total counter
unstale_cache_shadow_reads_total{cache="products",result="differs"} 0
unstale_cache_shadow_reads_total{cache="products",result="equal"} 0
unstale_cache_shadow_reads_total{cache="products",result="gone"} 0
unstale_cache_shadow_reads_total{cache="products",result="not_deterministic"} 0
unstale_cache_shadow_reads_total{cache="products",result="unknown"} 0
# HELP unstale_cache_short_leases_total Leases for as long as the map's, which is shorter than configured.
# TYPE unstale_cache_short_leases_total counter
unstale_cache_short_leases_total{cache="products"} 0
# HELP unstale_cache_stalled_commands_total Commands to Redis that timed out because this process did not run.
# TYPE unstale_cache_stalled_commands_total counter
unstale_cache_stalled_commands_total{cache="products"} 0
# HELP unstale_cache_stray_answers_total Answers of a server that workers had left: none was used.
# TYPE unstale_cache_stray_answers_total counter
unstale_cache_stray_answers_total{cache="products"} 0
# HELP unstale_cache_unreported_messages_total Messages received that this process should have reported and did not.
# TYPE unstale_cache_unreported_messages_total counter
unstale_cache_unreported_messages_total{cache="products"} 0
# HELP unstale_cache_unsettled_total Calls that had to load, since their caller's writes are not known to be settled.
# TYPE unstale_cache_unsettled_total counter
unstale_cache_unsettled_total{cache="products"} 1
`
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(got)
	if text := scrape(r); text != strings.TrimPrefix(want, "\n") {
		t.Errorf("got\n%s\nwant%s", text, want)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Two caches register with different labels, and one without Redis is not healthy.
func TestTwoCaches(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		r.MustRegister(cacheprom.New(newCache(t, cache.Config{}), prometheus.Labels{"cache": name}))
	}
	text := scrape(r)
	for _, name := range []string{"a", "b"} {
		if line := fmt.Sprintf("\nunstale_cache_healthy{cache=%q} 0\n", name); !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

// scrape returns what Prometheus gets.
func scrape(r *prometheus.Registry) string {
	to := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(to, httptest.NewRequest("GET", "/metrics", nil))
	return to.Body.String()
}

// docs/cache.md lists every metric.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cache.md")
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 100)
	cacheprom.New(newCache(t, cache.Config{}), nil).Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		if !bytes.Contains(page, []byte("| `"+name)) {
			t.Errorf("docs/cache.md has no row for %s", name)
		}
		n++
	}
	if listed := strings.Count(string(page), "| `unstale_cache_"); n == 0 || listed != n {
		t.Errorf("docs/cache.md lists %d metrics, there are %d", listed, n)
	}
}

// waiting is a Checker of writes that are not settled.
type waiting struct{}

func (waiting) Settled(context.Context) (bool, time.Duration, error) { return false, time.Minute, nil }

// Each entry of the section reads has metrics of its own, and entries of one name share them.
func TestReads(t *testing.T) {
	t.Parallel()
	c := cachetest.NewStore(t).Cache(cache.Config{Prefix: "shop:"})
	first, second := cache.NewReadMap("first"), cache.NewReadMap("second")
	invalid := cache.NewReadMap("third", cache.ReadVar{Name: "app", Text: "${UNSTALE_TEST_UNSET}"})
	page, home := first.Entry("product_page", cache.Options{TTL: time.Minute}), first.Entry("home", cache.Options{TTL: time.Minute})
	for _, read := range []cache.Read{
		page.Read("shop:product:1"), page.Read("shop:product:1"), page.Read("shop:product:2"), home.Read("shop:home"),
		second.Entry("home", cache.Options{TTL: time.Minute}).Read("shop:home"),
		page.Refuse("product_id", ""), invalid.Entry("list", cache.Options{TTL: time.Minute}).Read("shop:list"),
	} {
		if _, err := cache.FetchRead(t.Context(), c, read, func(context.Context) (string, error) { return "v", nil }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cache.FetchRead(t.Context(), c, page.Read("shop:product:3"), func(context.Context) (string, error) { return "", errors.New("no database") }); err == nil {
		t.Error("a load that fails has no error")
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(cacheprom.New(c, nil))
	text := scrape(r)
	for _, line := range []string{
		`unstale_cache_read_requests_total{read="product_page",result="error"} 1`, `unstale_cache_read_requests_total{read="product_page",result="memory"} 0`,
		`unstale_cache_read_requests_total{read="product_page",result="miss"} 2`, `unstale_cache_read_requests_total{read="product_page",result="redis"} 1`,
		`unstale_cache_read_requests_total{read="home",result="miss"} 1`, `unstale_cache_read_requests_total{read="home",result="redis"} 1`,
		`unstale_cache_read_refused_total{read="product_page"} 1`, `unstale_cache_read_refused_total{read="list"} 1`,
		`unstale_cache_read_stale_total{read="home"} 0`, `unstale_cache_read_memory_evictions_total{read="home"} 0`,
		`unstale_cache_read_seconds_bucket{read="product_page",le="+Inf"} 4`, `unstale_cache_read_seconds_count{read="home"} 2`,
		fmt.Sprintf("unstale_cache_reads_info{version=%q} 1", first.Version()), fmt.Sprintf("unstale_cache_reads_info{version=%q} 1", second.Version()),
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if n := strings.Count(text, "\nunstale_cache_reads_info{"); n != 2 {
		t.Errorf("%d fingerprints", n)
	}
	if t.Failed() {
		t.Log(text)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
