package main

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// Sentence 17: a reader that receives messages of a process keeps values in L1, and drops them when
// the process is killed. Messages of the next process count from the first one on.
func TestReaderOfAKilledWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cacheOn("")
	from := func() cache.Source {
		t.Helper()
		got, err := cache.FetchResult(t.Context(), c, "thing:1", func(context.Context) (string, error) { return "new", nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Source
	}
	for range 2 {
		r := w.start()
		r.until("memory to open", func() bool { return c.Healthy() == nil })
		r.until("a hit in memory", func() bool { return from() == cache.FromMemory })
		r.signal(os.Kill)
		r.end()
		testenv.Eventually(t, "memory to close", func() bool { return c.Healthy() != nil })
		if source := from(); source == cache.FromMemory {
			t.Error("it gives out what it cannot hear about")
		}
	}
}

// cacheOn returns a Cache with L1, which listens on a channel: "" means the default.
func (w *world) cacheOn(channel string) *cache.Cache {
	w.t.Helper()
	source, err := outbox.Source(w.t.Context(), w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: w.server.Addr(), ContextTimeoutEnabled: true})
	c, err := cache.New(cache.Config{
		Redis: client, Prefix: "shop:", Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Memory: cache.Memory{Size: 10, TTL: time.Hour, Channel: channel, Sources: []string{source}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = c.Close(), client.Close() })
	return c
}
