package limitprom_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/limit/limitprom"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The metrics are what Statistics says, pass Prometheus' own linter, and are on the page. Limiters
// stand side by side.
func TestCollector(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	there := redis.NewClient(o)
	away := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
	registry := prometheus.NewPedanticRegistry()
	for name, client := range map[string]*redis.Client{"codes": there, "logins": away} {
		defer func() { _ = client.Close() }()
		l, err := limit.New(limit.Config{Redis: client, Prefix: name + ":", Max: 2, Window: time.Hour, WhenAway: limit.Allow, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := l.Take(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
		}
		registry.MustRegister(limitprom.New(l, prometheus.Labels{"limit": name}))
	}
	want := `
# HELP unstale_limit_attempts_total Attempts, by what was decided.
# TYPE unstale_limit_attempts_total counter
unstale_limit_attempts_total{limit="codes",result="allowed"} 2
unstale_limit_attempts_total{limit="codes",result="refused"} 1
unstale_limit_attempts_total{limit="codes",result="unsure"} 0
unstale_limit_attempts_total{limit="logins",result="allowed"} 0
unstale_limit_attempts_total{limit="logins",result="refused"} 0
unstale_limit_attempts_total{limit="logins",result="unsure"} 3
`
	text := scrape(registry)
	if text != want[1:] {
		t.Errorf("%s", text)
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil || !strings.Contains(string(page), "| `unstale_limit_attempts_total{result}` |") {
		t.Errorf("docs/limits.md has no row for it: %v", err)
	}
}

// scrape returns what Prometheus gets.
func scrape(r *prometheus.Registry) string {
	to := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(to, httptest.NewRequest("GET", "/metrics", nil))
	return to.Body.String()
}
