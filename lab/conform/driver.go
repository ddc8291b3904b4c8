package conform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

// ClientOptions configure the client in Go, which is package cache.
type ClientOptions struct {
	L1    bool   // it has an in-process cache
	Plant string // a bug: see Plants
}

// Validate returns an error that names the invalid field.
func (o ClientOptions) Validate() error {
	i := slices.IndexFunc(Plants, func(p Plant) bool { return p.Name == o.Plant })
	switch {
	case o.Plant == "":
		return nil
	case i < 0:
		return fmt.Errorf("there is no plant %q", o.Plant)
	case Plants[i].memory && !o.L1:
		return fmt.Errorf("plant %q: it is a bug of the in-process cache, so it needs l1", o.Plant)
	}
	return nil
}

// A driver makes package cache obey lines.
type driver struct {
	hello   Line
	cache   *cache.Cache
	evicted atomic.Int64 // keys and patterns of messages
	calls   sync.WaitGroup

	mu      sync.Mutex
	out     *json.Encoder
	number  int               // of the latest load
	waiting map[int]chan Line // loads, by their number
}

// ServeClient is the driver of package cache: it obeys lines of in and writes lines to out, until in
// ends or a line asks it to close.
func ServeClient(ctx context.Context, in io.Reader, out io.Writer, o ClientOptions) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	lines := json.NewDecoder(in)
	d := &driver{out: json.NewEncoder(out), waiting: map[int]chan Line{}}
	defer d.calls.Wait()
	defer cancel()
	if err := lines.Decode(&d.hello); err != nil {
		return orderly(err)
	}
	if d.hello.Type != LineHello {
		return fmt.Errorf("the first line has the type %q, wanted %q", d.hello.Type, LineHello)
	}
	end, err := d.open(o)
	if err != nil {
		return err
	}
	defer func() { cancel(); err = errors.Join(err, end()) }()
	if o.L1 && !wait(ctx, func() bool { return d.cache.Healthy() == nil }) {
		return context.Cause(ctx)
	}
	d.tell(Line{Type: LineReady, Version: DriverVersion, Name: "driver of package cache", L1: o.L1, Many: true, Cluster: true})
	for {
		var l Line
		if err := lines.Decode(&l); err != nil {
			return orderly(err)
		}
		switch l.Type {
		case LineFetch, LineMany:
			d.calls.Go(func() { d.fetch(ctx, l) })
		case LineLoaded:
			d.loaded(l)
		case LineStats:
			d.calls.Go(func() { d.stats(ctx, l) })
		case LineClose:
			return nil
		default:
			return fmt.Errorf("a line has the unknown type %q", l.Type)
		}
	}
}

// orderly returns the error of a read, unless it is the end of the input.
func orderly(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read a line: %w", err)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// open opens the cache. end closes it and its clients.
func (d *driver) open(o ClientOptions) (end func() error, err error) {
	redis.SetLogger(rig.Silence{})
	client, err := d.connect(o.Plant)
	if err != nil {
		return nil, err
	}
	bare, _ := d.connect("")
	if o.Plant != "" {
		Spoil(o.Plant, client, bare)
	}
	config := cache.Config{
		Redis: client, Lease: ms(d.hello.Lease), Timeout: ms(d.hello.Timeout), Logger: slog.New(slog.DiscardHandler), LoadPause: -1,
		Hooks: cache.Hooks{Evict: func(keys, patterns []string) { d.evicted.Add(int64(len(keys) + len(patterns))) }},
	}
	if o.L1 {
		config.Memory = cache.Memory{Size: 100_000, Channel: d.hello.Channel, Sources: []string{d.hello.Source}, Period: ms(d.hello.Period)}
	}
	if d.cache, err = cache.New(config); err != nil {
		return nil, errors.Join(err, client.Close(), bare.Close())
	}
	return func() error { return errors.Join(d.cache.Close(), client.Close(), bare.Close()) }, nil
}

// connect returns a client of the server, or of its Cluster, whose messages have the bug of a plant.
func (d *driver) connect(plant string) (redis.UniversalClient, error) {
	options, err := redis.ParseURL(d.hello.Redis)
	if err != nil {
		return nil, err
	}
	all := &redis.UniversalOptions{
		Addrs: []string{options.Addr}, DB: options.DB, IsClusterMode: d.hello.Cluster, ContextTimeoutEnabled: true, ReadTimeout: ms(d.hello.Timeout), WriteTimeout: ms(d.hello.Timeout),
	}
	if plant == ignoredGap || plant == characterGlobs {
		all.Protocol, all.Dialer = 2, dialSpoiled(plant)
	}
	return redis.NewUniversalClient(all), nil
}

// tell writes a line. If the judge has gone, the input ends.
func (d *driver) tell(l Line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(l)
}

// sources are the names of sources in lines.
var sources = map[cache.Source]string{cache.FromMemory: "memory", cache.FromRedis: "redis", cache.FromLoader: "load"}

func (d *driver) fetch(ctx context.Context, l Line) {
	out := Line{Type: LineResult, ID: l.ID}
	p, err := cache.NewPolicy(cache.Options{TTL: ms(cmp.Or(l.TTL, d.hello.TTL)), Stale: cmp.Or(ms(l.Stale), -1), Tags: l.Tags})
	switch {
	case err != nil:
	case l.Type == LineMany:
		out.Values, err = cache.FetchMany(ctx, d.cache, l.Keys, d.load, p)
	default:
		key := l.Keys[0]
		var got cache.Result[string]
		got, err = cache.FetchResult(ctx, d.cache, key, func(ctx context.Context) (string, error) {
			values, err := d.load(ctx, l.Keys)
			value, ok := values[key]
			if err == nil && !ok {
				err = cache.ErrNotFound
			}
			return value, err
		}, p)
		if out.From = sources[got.Source]; got.Stale {
			out.From = "stale"
		}
		if out.Values = map[string]string{key: got.Value}; errors.Is(err, cache.ErrNotFound) {
			out.Values, err = nil, nil
		}
	}
	if err != nil {
		out.Values, out.Error = nil, err.Error()
	}
	d.tell(out)
}

func (d *driver) stats(ctx context.Context, l Line) {
	if wait(ctx, func() bool { return d.evicted.Load() >= l.Evicted }) {
		d.tell(Line{Type: LineStats, ID: l.ID, Evicted: d.evicted.Load(), Open: d.cache.Healthy() == nil, Refused: d.cache.Statistics().Refused})
	}
}

// wait waits until a condition holds. It reports false if the context ends first.
func wait(ctx context.Context, holds func() bool) bool {
	for !holds() {
		if sleep.For(ctx, time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// load asks the judge for values.
func (d *driver) load(ctx context.Context, keys []string) (map[string]string, error) {
	came := make(chan Line, 1)
	d.mu.Lock()
	d.number++
	id := d.number
	d.waiting[id] = came
	d.mu.Unlock()
	d.tell(Line{Type: LineLoad, ID: id, Keys: keys})
	select {
	case l := <-came:
		if l.Error != "" {
			return nil, errors.New(l.Error)
		}
		return l.Values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *driver) loaded(l Line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if came := d.waiting[l.ID]; came != nil {
		delete(d.waiting, l.ID)
		came <- l
	}
}
