package cache_test

import (
	"errors"
	"testing"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// While the invalidation of an outbox is behind, Healthy returns ErrBehind, and memory stays open,
// unless CloseBehind is set.
func TestMemoryBehind(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		w := newWorld(t)
		channel := "c:" + t.Name()
		config := memoryOf(channel)
		config.CloseBehind = strict
		c := w.cache(cache.Config{Memory: config})
		b := w.beat(channel, "e")
		open(t, c)
		wantFetch(t, "loaded", c, "k", w.db.read, nil, "old", cache.FromLoader)
		wantFetch(t, "kept", c, "k", w.db.read, nil, "old", cache.FromMemory)
		tell := func(behind int64) {
			b.publish(protocol.Message{Beat: &protocol.Beat{Source: "s", Behind: behind}})
		}
		testenv.Eventually(t, "it is behind", func() bool {
			tell(60_000)
			return errors.Is(c.Healthy(), cache.ErrBehind)
		})
		if !strict {
			wantFetch(t, "behind", c, "k", w.db.read, nil, "old", cache.FromMemory)
		}
		testenv.Eventually(t, "it is no longer behind", func() bool {
			tell(1)
			return c.Healthy() == nil
		})
		b.stop()
	}
}
