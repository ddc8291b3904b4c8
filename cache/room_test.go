package cache_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// A lines handler keeps what is logged, with its attributes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// with returns the lines that have a text in them.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// openMemory returns an open Cache that logs to lines.
func (w *world) openMemory(logged *lines, memory cache.Memory) *cache.Cache {
	w.Helper()
	memory.MaxStaleness, memory.Channel = time.Hour, "c:"+w.Name()
	c := w.cache(cache.Config{Memory: memory, Logger: logged.logger()})
	open(w, c)
	return c
}

// values fetches so many values of a length, few at a time: on a busy machine, a reply of several
// megabytes comes too late, and its values are not kept.
func values(t testing.TB, c *cache.Cache, prefix string, n, length int) {
	t.Helper()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(prefix, i)
	}
	for some := range slices.Chunk(keys, 100) {
		_, err := cache.FetchMany(t.Context(), c, some, func(_ context.Context, keys []string) (map[string]string, error) {
			found := map[string]string{}
			for _, key := range keys {
				found[key] = strings.Repeat("v", length)
			}
			return found, nil
		}, nil)
		testenv.Must(t, err)
	}
}

// An L1 that drops more values than it returns reports it: in the statistics, and in one log record
// that names the setting.
func TestMemoryIsTooSmall(t *testing.T) {
	t.Parallel()
	const small = "memory is too small"
	for _, c := range []struct {
		name, fix string
		memory    cache.Memory
		length    int
	}{
		{"values", "raise Memory.Size", cache.Memory{Size: 10}, 1},
		{"bytes", "raise Memory.Bytes", cache.Memory{Size: 1000, Bytes: 10_000}, 1000},
		{"large values", "raise Memory.Bytes", cache.Memory{Size: 1000, Bytes: 10_000}, 10_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, logged := newWorld(t), &lines{}
			cached := w.openMemory(logged, c.memory)
			values(t, cached, "few:", 5, 1)
			if n := cached.Statistics().L1Evictions; n != 0 {
				t.Errorf("%d values were dropped where there was room", n)
			}
			values(t, cached, "a:", 1500, c.length)
			testenv.Eventually(t, "the values to be dropped", func() bool { return cached.Statistics().L1Evictions >= 1490 })
			values(t, cached, "b:", 2500, c.length)
			testenv.Eventually(t, "the values to be dropped", func() bool { return cached.Statistics().L1Evictions >= 3990 })
			values(t, cached, "c:", 1, 1)
			if got := logged.with(small); len(got) != 1 || !strings.Contains(got[0], c.fix) {
				t.Errorf("logged %q, wanted one line with %q", got, c.fix)
			}
		})
	}
	t.Run("no line where more is given out", func(t *testing.T) {
		t.Parallel()
		w, logged := newWorld(t), &lines{}
		c := w.openMemory(logged, cache.Memory{Size: 10})
		values(t, c, "hot", 1, 1)
		hit := func(n int) {
			for range n {
				_, err := cache.Get[string](t.Context(), c, "hot0")
				testenv.Must(t, err)
			}
		}
		for i := range 3 {
			hit(2000)
			values(t, c, fmt.Sprint(i, ":"), 1000, 1)
			testenv.Eventually(t, "the values to be dropped", func() bool { return c.Statistics().L1Evictions >= uint64(i)*1000+990 })
		}
		hit(1)
		if got := logged.with(small); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// No more bytes are kept than Memory.Bytes, before compression, and none of a value that is larger.
func TestMemoryBytes(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]cache.Config{"as it is": {}, "compressed": {CompressAbove: 100}, "bare": {
		Plain: true, Policy: cache.MustPolicy(cache.Options{TTL: time.Hour, Stale: -1, NegativeTTL: -1}),
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config.Memory = cache.Memory{Size: 1000, Bytes: 100_000, MaxStaleness: time.Hour, Channel: "c:" + t.Name()}
			c, other := w.cache(config), w.cache(cache.Config{Plain: config.Plain, Policy: config.Policy, CompressAbove: config.CompressAbove})
			open(t, c)
			values(t, c, "loaded:", 50, 10_000)
			testenv.Eventually(t, "the bytes to be bounded", func() bool { s := c.Statistics(); return s.L1Size <= 10 && s.L1Evictions >= 40 })
			values(t, other, "read:", 50, 10_000)
			values(t, c, "read:", 50, 10_000)
			testenv.Eventually(t, "the bytes to be bounded", func() bool { s := c.Statistics(); return s.L1Size <= 10 && s.L1Evictions >= 90 })
			c.Clear()
			w.db.set(strings.Repeat("v", 100_001))
			wantFetch(t, "a large value", c, "k", w.db.read, nil, w.db.value, cache.FromLoader)
			wantFetch(t, "a large value", c, "k", w.db.read, nil, w.db.value, cache.FromRedis)
			if s := c.Statistics(); s.L1Size != 0 || s.L1Evictions < 92 {
				t.Errorf("%+v", s)
			}
			w.db.set(strings.Repeat("v", 90_000))
			wantFetch(t, "a value that fits", c, "l", w.db.read, nil, w.db.value, cache.FromLoader)
			wantFetch(t, "a value that fits", c, "l", w.db.read, nil, w.db.value, cache.FromMemory)
		})
	}
}
