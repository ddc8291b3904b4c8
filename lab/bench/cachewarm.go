package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

const (
	warmKeys   = 5000
	warmRounds = 5      // of a run
	warmFloors = 10     // a round of the floor has so many times as many keys, to take as long
	keptValues = 50_000 // in memory
)

// warmUp measures keys per second of Warm, against pipelines of 500 GETs and SETs.
func warmUp(ctx context.Context, cfg Config, client *redis.Client, details map[string]any) (err error) {
	c, err := newReader(cache.Config{Redis: client})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	defer keepAlive(ctx, client)()
	correct, err := newCorrectReader(ctx, client)
	if err != nil {
		return err
	}
	n := max(warmKeys/cfg.Scale, 1)
	var rates [3][]float64
	for round := range cfg.Runs*warmRounds + 1 {
		fmt.Fprintf(cfg.Progress, "warm-up, %d of %d\n", round, cfg.Runs*warmRounds)
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("warm:", round, ":", i)
		}
		kinds := [len(rates)]func() error{func() error {
			for part := range warmFloors {
				if err := floorWarm(ctx, client, fmt.Sprint(part), keys); err != nil {
					return err
				}
			}
			return nil
		}, func() error {
			got, err := cache.Warm(ctx, c, slices.Values(keys), func(context.Context, string) (product, error) { return someProduct, nil }, cache.Static, cache.WarmOptions{})
			if err == nil && got.Loaded != n {
				err = fmt.Errorf("%+v of %d keys", got, n)
			}
			return err
		}, func() error {
			some := make([]string, n)
			for i := range some {
				some[i] = "correct:" + keys[i]
			}
			return correct.warm(ctx, some)
		}}
		for turn := range kinds {
			kind := (turn + round) % len(kinds)
			seconds, err := timed(kinds[kind])
			if err != nil {
				return err
			}
			if round > 0 { // the first one does not count
				rates[kind] = append(rates[kind], float64(n*[...]int{warmFloors, 1, 1}[kind])/seconds)
			}
		}
		if err := client.FlushDB(ctx).Err(); err != nil { // all rounds begin alike
			return err
		}
		writeAlive(ctx, client)
	}
	details["warm_up"] = newPair(rates[1], rates[0], rates[2], "keys/s")
	return nil
}

// floorWarm looks keys up, behind a prefix, and stores all that are missing.
func floorWarm(ctx context.Context, client *redis.Client, prefix string, keys []string) error {
	for some := range slices.Chunk(keys, 500) {
		cmds, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range some {
				p.Get(ctx, prefix+key)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range some {
				if !errors.Is(cmds[i].Err(), redis.Nil) {
					continue
				}
				text, err := json.Marshal(someProduct)
				if err != nil {
					return err
				}
				p.Set(ctx, prefix+key, text, time.Hour)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryOfEntries measures the heap of a value in memory, against one in otter, without what an
// empty one takes.
func memoryOfEntries(ctx context.Context, cfg Config, client *redis.Client, details map[string]any) error {
	n := max(keptValues/cfg.Scale, 100)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "kept:" + strconv.Itoa(i)
	}
	load := func(_ context.Context, key string) (product, error) {
		return product{len(key), "a name of some length, for " + key, 12.5}, nil
	}
	var sizes [2][]float64
	for run := range cfg.Runs + 1 {
		fmt.Fprintf(cfg.Progress, "memory of entries, %d of %d\n", run, cfg.Runs)
		for kind, grown := range []func() (int64, error){
			func() (int64, error) { return keepInOtter(ctx, keys, load) },
			func() (int64, error) { return keepInMemory(ctx, client, keys, load) },
		} {
			bytes, err := grown()
			if err != nil {
				return err
			}
			if run > 0 { // the first one also opens connections
				sizes[kind] = append(sizes[kind], float64(bytes)/float64(n))
			}
		}
	}
	details["memory_of_entry"] = pair{Ours: median(sizes[1]), Floor: median(sizes[0]), Ratio: median(sizes[1]) / median(sizes[0]), Unit: "bytes"}
	return nil
}

// keepInMemory returns by how much the heap grows while a Cache keeps values.
func keepInMemory(ctx context.Context, client *redis.Client, keys []string, load func(context.Context, string) (product, error)) (grown int64, err error) {
	c, _, err := newMemoryReader(ctx, client, len(keys))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	before := heapInUse()
	if _, err := cache.Warm(ctx, c, slices.Values(keys), load, cache.Static, cache.WarmOptions{}); err != nil {
		return 0, err
	}
	if size := c.Statistics().L1Size; size < len(keys)*9/10 {
		return 0, fmt.Errorf("memory keeps %d values of %d", size, len(keys))
	}
	return heapInUse() - before, nil
}

// keepInOtter does the same with a bare otter.
func keepInOtter(ctx context.Context, keys []string, load func(context.Context, string) (product, error)) (grown int64, err error) {
	bare := otter.Must(&otter.Options[string, product]{
		MaximumSize:      len(keys),
		ExpiryCalculator: otter.ExpiryWritingFunc(func(otter.Entry[string, product]) time.Duration { return time.Hour }),
	})
	defer bare.StopAllGoroutines()
	before := heapInUse()
	for _, key := range keys {
		value, err := load(ctx, key)
		if err != nil {
			return 0, err
		}
		bare.Set(key, value)
	}
	bare.CleanUp()
	return heapInUse() - before, nil
}

// heapInUse returns the bytes of the objects that are reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
