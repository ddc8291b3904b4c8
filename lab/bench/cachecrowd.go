package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

const (
	crowdKeys  = 1000
	crowdPool  = 64     // connections
	crowdReads = 20_000 // of all callers in a round
	crowdTurns = 10     // rounds of a run
)

// aliveSource is the field of the sign of life that keepAlive writes.
const aliveSource = "bench"

// crowdCallers are the numbers of callers.
var crowdCallers = []int{1, 16, 64, 512}

// A crowdFigure has the reads per second of callers of one process, all of which are hits in Redis.
type crowdFigure struct {
	Callers int     `json:"callers"`
	Ours    float64 `json:"ours"`
	GETs    float64 `json:"gets"`          // of go-redis, with crowdPool connections
	Wide    float64 `json:"gets_wide"`     // with as many connections as callers
	Rueidis float64 `json:"rueidis"`       // GETs that share pipelines
	Ratio   float64 `json:"ratio"`         // of ours to GETs, the median of the rounds
	Spread  float64 `json:"spread"`        // see pair
	Beside  float64 `json:"rueidis_ratio"` // of ours to rueidis, likewise
	Bytes   float64 `json:"network_bytes"` // of a read of ours, both ways
	Plain   float64 `json:"plain_bytes"`   // of a GET
}

func (f crowdFigure) String() string {
	return fmt.Sprintf("%d callers: ours %.0f/s, GETs %.0f/s, as many connections as callers %.0f/s, rueidis %.0f/s, ratio %.2f (spread %.1f %%), to rueidis %.2f, %.0f bytes per read (GET %.0f)",
		f.Callers, f.Ours, f.GETs, f.Wide, f.Rueidis, f.Ratio, 100*f.Spread, f.Beside, f.Bytes, f.Plain)
}

// crowd measures hits in Redis of many callers, beside GETs of go-redis and of rueidis. A worker's
// sign of life is there, so that each pipeline asks for it.
func crowd(ctx context.Context, cfg Config, server *redisServer, details map[string]any) (err error) {
	stop := keepAlive(ctx, server.Client)
	defer stop()
	for _, callers := range crowdCallers {
		if err := crowdOf(ctx, cfg, server, callers, details); err != nil {
			return fmt.Errorf("%d callers: %w", callers, err)
		}
	}
	return nil
}

func crowdOf(ctx context.Context, cfg Config, server *redisServer, callers int, details map[string]any) (err error) {
	options, err := redis.ParseURL(server.url)
	if err != nil {
		return err
	}
	clientOf := func(connections int) *redis.Client {
		o := *options
		o.ContextTimeoutEnabled, o.PoolSize = true, connections
		return redis.NewClient(&o)
	}
	narrow, wide, own := clientOf(crowdPool), clientOf(callers), clientOf(crowdPool)
	defer func() { err = errors.Join(err, narrow.Close(), wide.Close(), own.Close()) }()
	shared, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{options.Addr}, SelectDB: options.DB, DisableCache: true})
	if err != nil {
		return err
	}
	defer shared.Close()
	c, err := newReader(cache.Config{Redis: own})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	keys := make([]string, crowdKeys)
	for i := range keys {
		keys[i] = "crowd:" + strconv.Itoa(i)
		if err := floorStore(ctx, narrow, keys[i], someProduct); err != nil {
			return err
		}
		if _, err := cache.Fetch(ctx, c, keys[i], loadProduct, cache.Static); err != nil {
			return err
		}
	}
	kinds := [4]func(key string) error{
		func(key string) error { return floorRead(ctx, narrow, key) },
		func(key string) error { return floorRead(ctx, wide, key) },
		func(key string) error {
			text, err := shared.Do(ctx, shared.B().Get().Key(key).Build()).AsBytes()
			if err != nil {
				return err
			}
			var p product
			return json.Unmarshal(text, &p)
		},
		func(key string) error { _, err := cache.Fetch(ctx, c, key, loadProduct, cache.Static); return err },
	}
	var rates [4][]float64
	var bytes [4]float64
	each := max(crowdReads/cfg.Scale/callers, 1)
	before := c.Statistics().L2Hits
	for round := range cfg.Runs*crowdTurns + 1 {
		for turn := range kinds {
			kind := (turn + round) % len(kinds)
			sent, err := server.networkBytes(ctx)
			if err != nil {
				return err
			}
			seconds, err := timed(func() error { return together(callers, each, keys, kinds[kind]) })
			if err != nil {
				return err
			}
			now, err := server.networkBytes(ctx)
			if err != nil {
				return err
			}
			if round > 0 { // the first one does not count
				rates[kind] = append(rates[kind], float64(callers*each)/seconds)
				bytes[kind] = (now - sent) / float64(callers*each)
			}
		}
	}
	if got, want := c.Statistics().L2Hits-before, uint64((cfg.Runs*crowdTurns+1)*callers*each); got != want {
		return fmt.Errorf("%d hits in Redis, want %d", got, want)
	}
	p, beside := newPair(rates[3], rates[0], nil, "reads/s"), newPair(rates[3], rates[2], nil, "reads/s")
	f := crowdFigure{Callers: callers, Ours: p.Ours, GETs: p.Floor, Wide: median(rates[1]), Rueidis: beside.Floor, Ratio: p.Ratio, Spread: p.Spread, Beside: beside.Ratio, Bytes: bytes[3], Plain: bytes[0]}
	fmt.Fprintln(cfg.Progress, f)
	details["crowd_"+strconv.Itoa(callers)] = f
	return nil
}

// together runs read concurrently in all callers.
func together(callers, each int, keys []string, read func(key string) error) error {
	faults := make([]error, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := 0; i < each && faults[caller] == nil; i++ {
				faults[caller] = read(keys[(caller*31+i)%len(keys)])
			}
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// keepAlive writes a worker's sign of life until stop is called.
func keepAlive(ctx context.Context, client *redis.Client) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writeAlive(ctx, client)
	writer.Go(func() {
		for sleep.For(ctx, 500*time.Millisecond) == nil {
			writeAlive(ctx, client)
		}
	})
	return func() { cancel(); writer.Wait(); client.Del(context.WithoutCancel(ctx), protocol.AliveKey("")) }
}

func writeAlive(ctx context.Context, client *redis.Client) {
	if now, err := client.Time(ctx).Result(); err == nil {
		client.HSet(ctx, protocol.AliveKey(""), aliveSource, protocol.Alive{Time: now.UnixMicro(), Lease: correctLife.Milliseconds(), Epoch: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Map: "0123456789abcdef"}.String())
	}
}
