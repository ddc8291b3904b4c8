package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

const (
	loadKeys    = 10_000           // that are read, by Zipf's law
	loadSkew    = 1.1              // of that law
	loadCallers = 16               // in parallel
	loadReads   = 80_000           // of each kind in a run
	loadWrites  = 100              // reads of a caller for each key that it makes stale
	loadTakes   = time.Millisecond // a load
)

// A loadFigure has the figures of one kind of reader under load, or their medians over the runs.
type loadFigure struct {
	HitRatio float64     `json:"hit_ratio"` // share of the reads that ran no loader
	Reads    float64     `json:"reads_per_second"`
	Latency  percentiles `json:"latency_us"`
	Bytes    float64     `json:"network_bytes_per_read"` // both ways, with invalidation
}

func (f loadFigure) String() string {
	return fmt.Sprintf("hit ratio %.4f, %.0f reads/s, us %v, %.0f network bytes per read", f.HitRatio, f.Reads, f.Latency, f.Bytes)
}

// A loadedReader reads a key, and calls load if it has to.
type loadedReader struct {
	name, prefix string
	read         func(ctx context.Context, key string, load func(context.Context) (product, error)) error
}

// underLoad measures readers whose keys are invalidated as by a worker: package cache with and
// without memory, and GET and SET.
func underLoad(ctx context.Context, cfg Config, server *redisServer, client *redis.Client, details map[string]any) (err error) {
	k, err := server.keyspace(keyspace.Options{Timeout: patientTimeout, BeaconTTL: time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	memory, channel, err := newMemoryReader(ctx, client, loadKeys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	shared, err := newReader(cache.Config{Redis: client})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shared.Close()) }()
	fetch := func(c *cache.Cache) func(context.Context, string, func(context.Context) (product, error)) error {
		return func(ctx context.Context, key string, load func(context.Context) (product, error)) error {
			_, err := cache.Fetch(ctx, c, key, load, cache.Static)
			return err
		}
	}
	readers := []loadedReader{
		{"load_floor", "floor:", func(ctx context.Context, key string, load func(context.Context) (product, error)) error {
			err := floorRead(ctx, client, "floor:"+key)
			if !errors.Is(err, redis.Nil) {
				return err
			}
			p, err := load(ctx)
			if err != nil {
				return err
			}
			return floorStore(ctx, client, "floor:"+key, p)
		}},
		{"load", readerPrefix, fetch(shared)},
		{"load_with_memory", readerPrefix, fetch(memory)},
	}
	runs := map[string][]loadFigure{}
	for run := range cfg.Runs {
		for turn := range readers {
			r := readers[(turn+run)%len(readers)]
			fmt.Fprintf(cfg.Progress, "%s, %d of %d\n", r.name, run+1, cfg.Runs)
			// other keys in each run: it begins with an empty cache
			f, err := r.measure(ctx, cfg, server, func(key string) error { return invalidate(ctx, k, channel, r.prefix+key) }, fmt.Sprint(run, r.name, ":"))
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			runs[r.name] = append(runs[r.name], f)
		}
	}
	for name, all := range runs {
		var ratios, reads, bytes []float64
		var latencies []percentiles
		for _, f := range all {
			ratios, reads, bytes, latencies = append(ratios, f.HitRatio), append(reads, f.Reads), append(bytes, f.Bytes), append(latencies, f.Latency)
		}
		details[name] = loadFigure{HitRatio: median(ratios), Reads: median(reads), Latency: medianOf(latencies), Bytes: median(bytes)}
	}
	return nil
}

// invalidate does the work of a worker in Redis.
func invalidate(ctx context.Context, k *keyspace.Keyspace, channel, name string) error {
	done, err := k.Unlinker.Unlink(ctx, []keyspace.Target{{Key: name}})
	if err == nil && len(done.Failures) > 0 {
		err = done.Failures[0].Err
	}
	if err != nil {
		return err
	}
	_, err = k.Publisher.Publish(ctx, channel, protocol.FormatEvent, keyspace.News{Keys: []string{name}})
	return err
}

// measure runs the callers. Invalidations take none of their latencies.
func (r loadedReader) measure(ctx context.Context, cfg Config, server *redisServer, invalidate func(key string) error, prefix string) (f loadFigure, err error) {
	each := max(loadReads/loadCallers/cfg.Scale, loadWrites)
	var loads atomic.Int64
	load := func(ctx context.Context) (product, error) {
		loads.Add(1)
		return someProduct, sleep.For(ctx, loadTakes)
	}
	took, faults := make([][]float64, loadCallers), make([]error, loadCallers)
	before, err := server.networkBytes(ctx)
	if err != nil {
		return f, err
	}
	var all sync.WaitGroup
	begun := time.Now()
	for caller := range loadCallers {
		all.Go(func() {
			draw := rand.NewZipf(rand.New(rand.NewPCG(1, uint64(caller))), loadSkew, 1, loadKeys-1)
			for i := 1; i <= each && faults[caller] == nil; i++ {
				key := prefix + strconv.FormatUint(draw.Uint64(), 10)
				began := time.Now()
				faults[caller] = r.read(ctx, key, load)
				took[caller] = append(took[caller], float64(time.Since(began).Nanoseconds())/1e3)
				if i%loadWrites == 0 && faults[caller] == nil {
					faults[caller] = invalidate(prefix + strconv.FormatUint(draw.Uint64(), 10))
				}
			}
		})
	}
	all.Wait()
	seconds := time.Since(begun).Seconds()
	after, err := server.networkBytes(ctx)
	if err := errors.Join(append(faults, err)...); err != nil {
		return f, err
	}
	var latencies []float64
	for _, some := range took {
		latencies = append(latencies, some...)
	}
	n := float64(len(latencies))
	return loadFigure{HitRatio: 1 - float64(loads.Load())/n, Reads: n / seconds, Latency: percentilesOf(latencies), Bytes: (after - before) / n}, nil
}

// networkBytes returns how many bytes the server has received and sent.
func (c *redisServer) networkBytes(ctx context.Context) (sum float64, err error) {
	stats := c.InfoMap(ctx, "stats").Val()["Stats"]
	for _, name := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		n, err := strconv.ParseFloat(stats[name], 64)
		if err != nil {
			return 0, fmt.Errorf("read %s of redis: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}
