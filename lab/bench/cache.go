package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/sleep"
)

const (
	cacheRounds = 40     // of each pair in a run
	memoryCalls = 20_000 // of each kind in a round
	redisCalls  = 500    // the same
	linkCalls   = 20     // the same
	linkDelay   = 500 * time.Microsecond
	memoryKeys  = 1000
	// patientTimeout is a Timeout that a busy machine does not reach: a command that was given up
	// would be no figure.
	patientTimeout = 5 * time.Second
	spreadParts    = 5
	// onlyPinned is the value of Config.Only for the hits, misses and the warm-up
	onlyPinned = "pinned"
)

// A product is the value that is cached.
type product struct {
	ID    int     `json:"id"`
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

var someProduct = product{42, "a name of some length", 12.5}

func loadProduct(context.Context) (product, error) { return someProduct, nil }

// A pair is one operation of package cache and its floor.
type pair struct {
	Ours  float64 `json:"ours"`
	Floor float64 `json:"floor"`
	// the median of the rounds' ratios, which a busy machine moves less than the medians of each
	Ratio float64 `json:"ratio"`
	// the same for the shortest program that keeps the promises; 0: there is none
	Correct      float64 `json:"correct,omitempty"`
	CorrectRatio float64 `json:"correct_ratio,omitempty"`
	// how far the medians of the ratios of five parts of the run are apart, as a share of Ratio; 0:
	// not known
	Spread float64 `json:"spread,omitempty"`
	Unit   string  `json:"unit"`
}

func (p pair) String() string {
	text := fmt.Sprintf("ours %.4g %s, floor %.4g %s, ratio %.3g", p.Ours, p.Unit, p.Floor, p.Unit, p.Ratio)
	if p.Spread > 0 {
		text += fmt.Sprintf(", spread %.1f %%", 100*p.Spread)
	}
	if p.Correct > 0 {
		text += fmt.Sprintf("; correct floor %.4g %s, ratio %.3g", p.Correct, p.Unit, p.CorrectRatio)
	}
	return text
}

// newPair returns the medians of the rounds. correct is nil without a correct floor.
func newPair(ours, floor, correct []float64, unit string) pair {
	ratios := ratiosOf(ours, floor)
	p := pair{Ours: median(ours), Floor: median(floor), Ratio: median(ratios), Unit: unit}
	if correct != nil {
		p.Correct, p.CorrectRatio = median(correct), median(ratiosOf(ours, correct))
	}
	if size := len(ratios) / spreadParts; size > 0 {
		var parts []float64
		for part := range spreadParts {
			parts = append(parts, median(ratios[part*size:(part+1)*size]))
		}
		p.Spread = (slices.Max(parts) - slices.Min(parts)) / p.Ratio
	}
	return p
}

func ratiosOf(ours, floor []float64) []float64 {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / floor[i]
	}
	return ratios
}

// readThrough measures package cache: a hit in memory against otter, a hit in Redis against GET, a
// miss against GET and SET, readers under load, a warm-up, and the memory of values. It also counts
// the loads of one key that all callers of two processes miss together. The main figures of the
// report are the hit in Redis.
func readThrough(ctx context.Context, cfg Config) (r *Report, err error) {
	if len(cfg.Reader) == 0 {
		return nil, errors.New("there is no command for a reader process")
	}
	server, err := openRedis(ctx, cfg.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	options, err := redis.ParseURL(server.url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	details := map[string]any{}
	unpin := func() error { return nil }
	if server.private != nil {
		if unpin, err = pin(server.private.Pid()); err != nil {
			return nil, err
		}
		details["pinned"] = "this process and Redis to one CPU, for hits, misses and the warm-up"
	}
	hit, err := besideRedis(ctx, cfg, client, details)
	if err == nil {
		err = missOverLink(ctx, cfg, *options, details)
	}
	if err == nil {
		err = besideOtter(ctx, cfg, client, details)
	}
	if err == nil {
		err = warmUp(ctx, cfg, client, details)
	}
	err = errors.Join(err, unpin())
	whole := cfg.Only != onlyPinned
	if err == nil && whole {
		err = crowd(ctx, cfg, server, details)
	}
	if err == nil && whole {
		err = underLoad(ctx, cfg, server, client, details)
	}
	if err == nil && whole {
		err = memoryOfEntries(ctx, cfg, client, details)
	}
	if err == nil && whole {
		err = missAtOnce(ctx, cfg, server.url, details)
	}
	if err != nil {
		return nil, err
	}
	return &Report{Ours: hit.Ours, Floor: hit.Floor, Unit: hit.Unit, Machine: ThisMachine("Redis " + server.version), Details: details}, nil
}

// readerPrefix is the Prefix of the mode's Caches.
const readerPrefix = "zahraah:prod:"

// newReader makes a Cache for this mode.
func newReader(config cache.Config) (*cache.Cache, error) {
	config.Prefix, config.Timeout, config.Logger = readerPrefix, patientTimeout, slog.New(slog.DiscardHandler)
	return cache.New(config)
}

// newMemoryReader makes a Cache with open memory for size values, and returns its channel.
func newMemoryReader(ctx context.Context, client *redis.Client, size int) (c *cache.Cache, channel string, err error) {
	channel = "bench:" + rand.Text()
	c, err = newReader(cache.Config{Redis: client, Memory: cache.Memory{Size: size, Channel: channel, MaxStaleness: time.Hour, TTL: time.Hour}})
	if err != nil {
		return nil, "", err
	}
	for c.Healthy() != nil {
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return nil, "", errors.Join(err, c.Healthy(), c.Close())
		}
	}
	return c, channel, nil
}

// besideRedis measures hits in Redis and misses beside a worker's sign of life, and returns the hits
// without a tag.
func besideRedis(ctx context.Context, cfg Config, client *redis.Client, details map[string]any) (untagged pair, err error) {
	defer keepAlive(ctx, client)()
	c, err := newReader(cache.Config{Redis: client})
	if err != nil {
		return pair{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	correct, err := newCorrectReader(ctx, client)
	if err != nil {
		return pair{}, err
	}
	if err := floorStore(ctx, client, "bare", someProduct); err != nil {
		return pair{}, err
	}
	for suffix, tag := range map[string]string{"": "", "_with_tag": "t"} {
		key, policy := "k"+suffix, cache.Static
		if tag != "" {
			policy = cache.Static.Tagged(tag)
		}
		if _, err := cache.Fetch(ctx, c, key, loadProduct, policy); err != nil {
			return pair{}, err
		}
		hits, err := cfg.beside("redis_hit"+suffix, redisCalls, ways{
			floor:   func() error { return floorRead(ctx, client, "bare") },
			correct: func() error { _, err := correct.read(ctx, readerPrefix+key, tag); return err },
			ours:    func() error { _, err := cache.Fetch(ctx, c, key, loadProduct, policy); return err },
		})
		if err != nil {
			return pair{}, err
		}
		misses, err := cfg.beside("miss"+suffix, redisCalls, missWays(ctx, c, correct, "miss"+suffix, tag, policy))
		if err != nil {
			return pair{}, err
		}
		details["redis_hit"+suffix], details["miss"+suffix] = hits, misses
		if suffix == "" {
			untagged = hits
		}
	}
	if s, want := c.Statistics(), uint64(2*cfg.calls(redisCalls)); s.L2Hits != want || s.Sets != want+2 {
		return pair{}, fmt.Errorf("%d hits in Redis and %d misses that were stored, want %d and %d", s.L2Hits, s.Sets, want, want+2)
	}
	return untagged, nil
}

// missWays are the ways to miss a key that nobody has asked for.
func missWays(ctx context.Context, c *cache.Cache, correct correctReader, name, tag string, policy *cache.Policy) ways {
	n := 0
	next := func(kind string) string { n++; return kind + name + strconv.Itoa(n) }
	return ways{
		floor:   func() error { return floorMiss(ctx, correct.Client, next("bare")) },
		correct: func() error { return correct.miss(ctx, next("correct"), tag) },
		ours:    func() error { _, err := cache.Fetch(ctx, c, next("k"), loadProduct, policy); return err },
	}
}

// missOverLink measures misses where each answer of Redis takes linkDelay longer.
func missOverLink(ctx context.Context, cfg Config, options redis.Options, details map[string]any) (err error) {
	dial := redis.NewDialer(&options)
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return slowConn{conn}, err
	}
	client := redis.NewClient(&options)
	defer func() { err = errors.Join(err, client.Close()) }()
	defer keepAlive(ctx, client)()
	c, err := newReader(cache.Config{Redis: client})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	correct, err := newCorrectReader(ctx, client)
	if err != nil {
		return err
	}
	misses, err := cfg.beside("miss_over_link", linkCalls, missWays(ctx, c, correct, "link", "", cache.Static))
	if s, want := c.Statistics(), uint64(cfg.calls(linkCalls)); err == nil && s.Sets != want {
		err = fmt.Errorf("%d misses were stored, want %d", s.Sets, want)
	}
	details["miss_over_link"] = misses
	return err
}

// A slowConn delays what it reads.
type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for end := time.Now().Add(linkDelay); time.Now().Before(end); { // a sleep would take a millisecond
		runtime.Gosched()
	}
	return n, err
}

// floorRead does GET and decode.
func floorRead(ctx context.Context, client *redis.Client, key string) error {
	text, err := client.Get(ctx, key).Bytes()
	if err != nil {
		return err
	}
	var p product
	return json.Unmarshal(text, &p)
}

// floorMiss does GET, encode and SET.
func floorMiss(ctx context.Context, client *redis.Client, key string) error {
	if err := client.Get(ctx, key).Err(); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("get %s, which is not stored: %w", key, err)
	}
	p, err := loadProduct(ctx)
	if err != nil {
		return err
	}
	return floorStore(ctx, client, key, p)
}

// floorStore does encode and SET.
func floorStore(ctx context.Context, client *redis.Client, key string, p product) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return client.Set(ctx, key, text, time.Hour).Err()
}

// besideOtter measures hits in memory against otter with the same options.
func besideOtter(ctx context.Context, cfg Config, client *redis.Client, details map[string]any) (err error) {
	c, _, err := newMemoryReader(ctx, client, 10*memoryKeys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	clock := otter.NewCoarseClock(10 * time.Millisecond)
	defer clock.Stop()
	bare := otter.Must(&otter.Options[string, product]{
		MaximumSize: 10 * memoryKeys, Clock: clock, StatsRecorder: stats.NewCounter(),
		ExpiryCalculator: otter.ExpiryWritingFunc(func(otter.Entry[string, product]) time.Duration { return time.Hour }),
	})
	defer bare.StopAllGoroutines()
	keys := make([]string, memoryKeys)
	for i := range keys {
		keys[i] = "product:" + strconv.Itoa(i)
		bare.Set(keys[i], someProduct)
		if _, err := cache.Fetch(ctx, c, keys[i], loadProduct, cache.Static); err != nil {
			return err
		}
	}
	i := 0
	ours := func() error {
		i++
		_, err := cache.Fetch(ctx, c, keys[i%memoryKeys], loadProduct, cache.Static)
		return err
	}
	hits, err := cfg.beside("memory_hit", memoryCalls, ways{floor: func() error {
		i++
		if _, ok := bare.GetIfPresent(keys[i%memoryKeys]); !ok {
			return fmt.Errorf("otter has lost %s", keys[i%memoryKeys])
		}
		return nil
	}, ours: ours})
	if err != nil {
		return err
	}
	allocations, err := allocationsOf(memoryCalls, ours)
	if s, want := c.Statistics(), uint64(cfg.calls(memoryCalls)+memoryCalls); err == nil && s.L1Hits != want {
		err = fmt.Errorf("%d hits in memory, want %d", s.L1Hits, want)
	}
	hits.Ours, hits.Floor, hits.Unit = hits.Ours*1000, hits.Floor*1000, "ns"
	details["memory_hit"], details["memory_hit_allocations"] = hits, allocations
	return err
}

// allocationsOf returns the allocations per call, to a hundredth. That precision leaves out the
// allocations of background goroutines.
func allocationsOf(calls int, op func() error) (float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if err := op(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return math.Round(100*float64(after.Mallocs-before.Mallocs)/float64(calls)) / 100, nil
}

// rounds returns how many a pair has in all runs.
func (c Config) rounds() int { return c.Runs * max(cacheRounds/c.Scale, 1) }

// calls returns how often each of a pair is called, with so many in a round.
func (c Config) calls(each int) int { return (c.rounds() + 1) * each }

// ways are the ways to do the same: without promises, by the shortest program that keeps them, or
// nil, and by unstale.
type ways struct{ floor, correct, ours func() error }

// beside alternates the ways in rounds of tens of milliseconds, after one that does not count. Each
// round starts with another one.
func (c Config) beside(name string, each int, w ways) (pair, error) {
	fmt.Fprintln(c.Progress, name)
	kinds := []func() error{w.floor, w.ours, w.correct}
	if w.correct == nil {
		kinds = kinds[:2]
	}
	var times [3][]float64
	for round := range c.rounds() + 1 {
		for turn := range kinds {
			kind := (turn + round) % len(kinds)
			seconds, err := timed(func() error {
				for range each {
					if err := kinds[kind](); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return pair{}, fmt.Errorf("%s: %w", name, err)
			}
			if round > 0 {
				times[kind] = append(times[kind], 1e6*seconds/float64(each))
			}
		}
	}
	return newPair(times[1], times[0], times[2], "us"), nil
}
