package docs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

// capture creates a trigger and serves the output of unstale capture diff --metrics every second,
// as node_exporter does.
func (d *drill) capture() (address string) {
	d.t.Helper()
	m, err := invalidation.Parse("map", []byte(drillMap+"capture: {captured: {entity: product, id: id, on: [insert]}}\n"),
		func(string) (string, bool) { return "", false })
	d.must(err)
	run(d.t, d.db, "CREATE TABLE captured (id INT PRIMARY KEY)")
	d.capturer = &capture.Capturer{DB: d.db, Captures: m.Captures(), Notify: func(string) {}}
	d.applyTriggers()
	compare := func(ctx context.Context, _ int) {
		if changes, err := d.capturer.Examine(ctx); changes != nil || err == nil {
			d.compared.put(capture.Differences(changes, err), time.Now(), false)
		}
	}
	compare(d.t.Context(), 0)
	d.steadily(time.Second, compare)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(d.compared.get())) // an error of the scrape is Prometheus'
	}))
	d.t.Cleanup(served.Close)
	return served.URL
}

func (d *drill) applyTriggers() {
	d.t.Helper()
	d.must(d.capturer.Apply(d.t.Context(), func(capture.Change) {}))
}

func (d *drill) dropTrigger() (cure func()) {
	d.t.Helper()
	d.must(d.capturer.Drop(d.t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}))
	return d.applyTriggers
}

// compareNoMore ends the comparisons. The last one is four hours old.
func (d *drill) compareNoMore() (cure func()) {
	d.compared.put(0, time.Now().Add(-4*time.Hour), true)
	return d.compared.goOn
}

// A comparison is the output of the latest comparison of triggers.
type comparison struct {
	mu    sync.Mutex
	text  string
	stays bool
}

// put stores a comparison, unless the previous one stays.
func (c *comparison) put(differences int, at time.Time, stays bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stays {
		return
	}
	var text strings.Builder
	_ = capture.WriteMetrics(&text, differences, at) // into memory
	c.text, c.stays = text.String(), stays
}

func (c *comparison) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}

func (c *comparison) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stays = false
}
