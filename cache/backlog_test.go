package cache_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A message that takes long to apply delays no exact key. Memory is closed while it waits, and opens
// again when all is applied.
func TestMemoryBehindSlowMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook := func(_, patterns []string) {
		if len(patterns) > 0 {
			once.Do(func() { close(reached); <-goOn })
		}
	}
	c := w.cache(cache.Config{Memory: memoryOf(channel), Hooks: cache.Hooks{Evict: hook}})
	b := w.beat(channel, "e")
	open(t, c)
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	wantFetch(t, "kept", c, "k", w.db.read, nil, "old", cache.FromMemory)
	b.publish(protocol.Message{Patterns: []string{"other:*"}})
	<-reached
	w.commit("new", "k")
	b.publish(protocol.Message{Keys: []string{"k"}})
	testenv.Eventually(t, "the new value", func() bool {
		got, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
		return err == nil && got == "new"
	})
	testenv.Eventually(t, "memory to close", func() bool {
		err := c.Healthy()
		return err != nil && strings.Contains(err.Error(), "has waited for more than 1s")
	})
	close(goOn)
	open(t, c)
	wantFetched(t, "afterwards", c, "k", w.db.read, "new")
	wantFetch(t, "afterwards", c, "k", w.db.read, nil, "new", cache.FromMemory)
}
