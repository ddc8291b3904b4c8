package cache_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// The floors stand beside what they bound: compare the two of one run.
var benchProduct = product{42, "a name of some length", 12.5}

// beside runs two operations by turns, in rounds of some milliseconds, and reports by how much the second one takes longer:
// the median over the rounds, which a busy machine moves less than the sums.
func beside(b *testing.B, floor, op func()) {
	b.Helper()
	const each = 100
	time1 := func(f func()) float64 {
		start := time.Now()
		for range each {
			f()
		}
		return float64(time.Since(start))
	}
	var floors, ratios []float64
	for b.Loop() {
		f, o := time1(floor), time1(op)
		floors, ratios = append(floors, f/each), append(ratios, o/f)
	}
	slices.Sort(floors)
	slices.Sort(ratios)
	b.ReportMetric(floors[len(floors)/2], "floor-ns")
	b.ReportMetric(ratios[len(ratios)/2], "x-floor")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkL2Hit(b *testing.B) {
	w := newWorld(b)
	c := w.cache(cache.Config{Redis: w.client})
	ctx := b.Context()
	load := func(context.Context) (product, error) { return benchProduct, nil }
	text, err := json.Marshal(benchProduct)
	must(b, err)
	must(b, w.client.Set(ctx, "bare", text, time.Hour).Err())
	for name, policy := range map[string]*cache.Policy{"untagged": cache.Static, "tagged": cache.Static.Tagged("t")} {
		b.Run(name, func(b *testing.B) {
			_, err := cache.Fetch(ctx, c, name, load, policy)
			must(b, err)
			beside(b, func() {
				text, err := w.client.Get(ctx, "bare").Bytes()
				must(b, err)
				var p product
				must(b, json.Unmarshal(text, &p))
			}, func() {
				_, err := cache.Fetch(ctx, c, name, load, policy)
				must(b, err)
			})
		})
	}
}

func BenchmarkMiss(b *testing.B) {
	w := newWorld(b)
	c := w.cache(cache.Config{Redis: w.client})
	ctx := b.Context()
	load := func(context.Context) (product, error) { return benchProduct, nil }
	n := 0
	for name, policy := range map[string]*cache.Policy{"untagged": cache.Static, "tagged": cache.Static.Tagged("t")} {
		b.Run(name, func(b *testing.B) {
			beside(b, func() {
				n++
				key := fmt.Sprint("bare", n)
				_ = w.client.Get(ctx, key).Err()
				text, err := json.Marshal(benchProduct)
				must(b, err)
				must(b, w.client.Set(ctx, key, text, time.Hour).Err())
			}, func() {
				n++
				_, err := cache.Fetch(ctx, c, fmt.Sprint("k", n), load, policy)
				must(b, err)
			})
		})
	}
}

func BenchmarkL1Hit(b *testing.B) {
	w := newWorld(b)
	c := w.cache(cache.Config{Prefix: "zahraah:prod:", Memory: cache.Memory{Size: 10_000, Channel: "c:" + b.Name(), MaxStaleness: time.Hour, TTL: time.Hour}})
	testenv.Eventually(b, "memory to open", func() bool { return c.Healthy() == nil })
	ctx := b.Context()
	load := func(context.Context) (product, error) { return benchProduct, nil }
	clock := otter.NewCoarseClock(10 * time.Millisecond)
	defer clock.Stop()
	bare := otter.Must(&otter.Options[string, product]{
		MaximumSize: 10_000, Clock: clock, StatsRecorder: stats.NewCounter(),
		ExpiryCalculator: otter.ExpiryWritingFunc(func(otter.Entry[string, product]) time.Duration { return time.Hour }),
	})
	defer bare.StopAllGoroutines()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("product:", i)
		_, err := cache.Fetch(ctx, c, keys[i], load, cache.Static)
		must(b, err)
		bare.Set(keys[i], benchProduct)
	}
	i := 0
	b.ReportAllocs()
	beside(b, func() {
		i++
		if _, ok := bare.GetIfPresent(keys[i%1000]); !ok {
			b.Fatal("missed")
		}
	}, func() {
		i++
		if _, err := cache.Fetch(ctx, c, keys[i%1000], load, cache.Static); err != nil {
			b.Fatal(err)
		}
	})
	if s := c.Statistics(); s.L2Hits != 0 {
		b.Fatalf("not from memory: %+v", s)
	}
}

// A hit in memory allocates nothing.
func TestMemoryAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.cache(cache.Config{Prefix: "zahraah:prod:", Memory: cache.Memory{Size: 100, Channel: "c:" + t.Name(), MaxStaleness: time.Hour}})
	open(t, c)
	ctx := t.Context()
	load := func(context.Context) (product, error) { return benchProduct, nil }
	_, err := cache.Fetch(ctx, c, "k", load, cache.Static)
	must(t, err)
	if n := testing.AllocsPerRun(1000, func() { _, _ = cache.Fetch(ctx, c, "k", load, cache.Static) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
