package cache_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A message that takes long to apply delays no exact key. Memory is closed while it waits, and
// opens again when all is applied.
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
	w.keep(c, "k")
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

// Messages that find no room behind one that takes long to apply count as lost: memory drops all
// values, logs why, and opens again.
func TestMemoryBehindTooManyMessages(t *testing.T) {
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
	logged := &lines{}
	c := w.cache(cache.Config{Memory: memoryOf(channel), Hooks: cache.Hooks{Evict: hook}, Logger: logged.logger()})
	b := w.beat(channel, "e")
	open(t, c)
	w.keep(c, "k")
	w.keep(c, "last")
	b.publish(protocol.Message{Patterns: []string{"other:*"}})
	<-reached
	flood := make([]string, protocol.MaxEntries)
	for i := range flood {
		flood[i] = fmt.Sprint("other", i)
	}
	for range 70 {
		b.publish(protocol.Message{Keys: flood})
	}
	b.publish(protocol.Message{Keys: []string{"last"}})
	testenv.Eventually(t, "the last message to arrive", func() bool { return c.Statistics().L1Size == 1 })
	if n := c.Statistics().Invalidations; n > 1 {
		t.Fatalf("%d invalidations were applied", n)
	}
	close(goOn)
	testenv.Eventually(t, "the log", func() bool {
		// more than once if a heartbeat comes meanwhile
		return len(logged.with("messages are dropped, and memory is emptied")) > 0
	})
	testenv.Eventually(t, "memory to drop all values", func() bool { return c.Statistics().L1Size == 0 })
	if n := c.Statistics().Invalidations; n >= 70_000 {
		t.Errorf("%d invalidations were applied, wanted some to be dropped", n)
	}
	open(t, c)
	wantFetch(t, "afterwards", c, "k", w.db.read, nil, "old", cache.FromRedis)
	wantFetch(t, "afterwards", c, "k", w.db.read, nil, "old", cache.FromMemory)
}
