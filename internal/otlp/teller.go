package otlp

import (
	"log/slog"
	"sync"
	"time"
)

// tellAgain is the shortest time between two warnings: a collector that now takes spans and now does not is told of once
// in that time.
const tellAgain = 10 * time.Minute

// A teller logs that the collector does not take spans, once, and that it does again. Safe for concurrent use.
type teller struct {
	log      *slog.Logger
	endpoint string

	mu      sync.Mutex
	told    bool      // of trouble that is not over
	at      time.Time // when it was told of last
	dropped int       // since then
}

// trouble notes what went wrong, and how many spans it has cost.
func (t *teller) trouble(spans int, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped += spans
	if t.told || !t.at.IsZero() && time.Since(t.at) < tellAgain {
		return
	}
	t.told, t.at, t.dropped = true, time.Now(), spans
	t.log.Warn("the collector does not take spans, which are dropped if that goes on; rows are carried as ever", "endpoint", t.endpoint, "error", why)
}

// well notes a request of which every span was taken.
func (t *teller) well() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told {
		t.told = false
		t.log.Info("the collector takes spans again", "endpoint", t.endpoint, "dropped", t.dropped)
	}
}
