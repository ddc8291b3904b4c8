package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// A worker publishes 1,000 names of its map, and logs once that there are more.
func TestMapWithManyNames(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("version: 1\nentities:\n")
	for i := range 1001 {
		fmt.Fprintf(&text, "  e%d: {keys: [\"shop:e%d:{id}\"]}\n", i, i)
	}
	w := newWorld(t, text.String())
	log := &logBuffer{}
	stop := w.run(w.url, log)
	w.enqueue(outbox.Invalidation{Entity: "e1000", ID: "1"})
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox_journal") == 1 })
	stop()
	if n := log.count("map has more names than are published"); n != 1 || log.count("names=1001 published=1000") != 1 {
		t.Errorf("%d lines of %s", n, log)
	}
}
