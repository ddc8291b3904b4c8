package cache_test

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// shadowLease is the lease of the tests: a shadow read waits for it and for three periods.
const shadowLease = 2 * time.Second

// A shadowWorld is a world with a worker that sends heartbeats and a Cache that checks every value
// from Redis.
type shadowWorld struct {
	*world
	c       *cache.Cache
	process string
	channel string
	beater  *beater
	log     *lines
}

func newShadowWorld(t testing.TB, change func(*cache.Config)) *shadowWorld {
	t.Helper()
	w := shadowWorldOf(newWorld(t), "p", change)
	open(t, w.c)
	return w
}

// shadowWorldOf makes a Cache of a process in a world. Its L1 is not open yet.
func shadowWorldOf(of *world, process string, change func(*cache.Config)) *shadowWorld {
	of.Helper()
	w := &shadowWorld{world: of, process: process, log: &lines{}, channel: "c:" + of.Name() + of.url + process}
	w.beater = w.beat(w.channel, process)
	config := cache.Config{Lease: shadowLease, Memory: memoryOf(w.channel), Shadow: cache.Shadow{Fraction: 1, Rate: 1000}, Logger: w.log.logger()}
	config.Memory.Process = process
	if change != nil {
		change(&config)
	}
	w.c = w.cache(config)
	return w
}

// fromRedis is a policy whose values stay out of L1, so each read is from Redis.
var fromRedis = cache.MustPolicy(cache.Options{TTL: time.Hour, SkipMemory: true})

func returns(value string) cache.Loader[string] {
	return func(context.Context) (string, error) { return value, nil }
}

// fill stores the value of the loader.
func (w *shadowWorld) fill(key string, load cache.Loader[string], p *cache.Policy) {
	w.Helper()
	if got, err := cache.FetchResult(w.Context(), w.c, key, load, p); err != nil || got.Source != cache.FromLoader {
		w.Fatalf("first: %+v, %v", got, err)
	}
}

// hit reads the value that fill has stored.
func (w *shadowWorld) hit(key string, load cache.Loader[string], p *cache.Policy) {
	w.Helper()
	if got, err := cache.FetchResult(w.Context(), w.c, key, load, p); err != nil || got.Source != cache.FromRedis {
		w.Fatalf("then: %+v, %v", got, err)
	}
}

// want waits for the results of all shadow reads, and returns the reports.
func (w *shadowWorld) want(want cache.ShadowStatistics) (reports []protocol.Shadow) {
	w.Helper()
	sum := func(s cache.ShadowStatistics) uint64 {
		return s.Equal + s.Gone + s.Differs + s.NotDeterministic + s.Unknown
	}
	testenv.Eventually(w, "the shadow reads", func() bool { return sum(w.c.Statistics().Shadow) >= sum(want) })
	if got := w.c.Statistics().Shadow; got != want {
		w.Errorf("%+v, wanted %+v", got, want)
	}
	entries, err := w.client.XRange(w.Context(), protocol.ShadowKey, "-", "+").Result()
	testenv.Must(w, err)
	for _, e := range entries {
		fields := map[string]string{}
		for name, value := range e.Values {
			fields[name] = value.(string)
		}
		report, err := protocol.ParseShadow(fields)
		testenv.Must(w, err)
		if report.Process == w.process {
			reports = append(reports, report)
		}
	}
	if uint64(len(reports)) != want.Differs {
		w.Errorf("reports: %+v", reports)
	}
	return reports
}

var (
	shadowEqual   = cache.ShadowStatistics{Equal: 1}
	shadowDiffers = cache.ShadowStatistics{Differs: 1}
	shadowUnknown = cache.ShadowStatistics{Unknown: 1}
)

// A write without a row is reported: with what identifies the entry, and without its value.
func TestShadowForgottenWrite(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, nil)
	policy := fromRedis.Tagged("a", "b")
	before := must1(t, w.client.Time(t.Context()).Result)
	w.fill("k", w.db.read, policy)
	stored := w.stored("k")
	filled := must1(t, w.client.Time(t.Context()).Result)
	w.db.set("new")
	w.hit("k", w.db.read, policy)
	reports := w.want(shadowDiffers)
	want := protocol.Shadow{Process: "p", Key: "k", Tags: []string{"a", "b"}, Digest: fmt.Sprintf("%x", sha1.Sum([]byte(stored)))}
	got := reports[0]
	if got.Lease.Before(before) || got.Lease.After(filled) || got.Loaded.Before(filled.Add(-time.Second)) {
		t.Errorf("lease %v and load %v, filled between %v and %v", got.Lease, got.Loaded, before, filled)
	}
	if got.Lease, got.Loaded = want.Lease, want.Loaded; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, wanted %+v", got, want)
	}
	if w.stored("k") != stored {
		t.Error("the entry was changed")
	}
	fields := fmt.Sprint(must1(t, w.client.XRange(t.Context(), protocol.ShadowKey, "-", "+").Result))
	if strings.Contains(fields, "old") || strings.Contains(fields, "new") {
		t.Errorf("a value is in the report: %s", fields)
	}
}

// Every form of an entry is compared with the result of the loader.
func TestShadowForms(t *testing.T) {
	t.Parallel()
	of := newWorld(t)
	forms := map[string]struct {
		change  func(*cache.Config)
		options cache.Options
	}{
		"tags":       {nil, cache.Options{Tags: []string{"t"}}},
		"stale":      {nil, cache.Options{Stale: time.Hour}},
		"sliding":    {nil, cache.Options{Sliding: true, SlidingMax: 2 * time.Hour}},
		"compressed": {func(c *cache.Config) { c.CompressAbove = 64 }, cache.Options{}},
		"raw":        {func(c *cache.Config) { c.CompressAbove, c.RawValues, c.Codec = 64, true, gobCodec{} }, cache.Options{}},
		"prefix":     {func(c *cache.Config) { c.Prefix = "p:" }, cache.Options{}},
	}
	worlds := map[string]*shadowWorld{}
	for name, e := range forms {
		worlds[name] = shadowWorldOf(of, name, e.change)
	}
	none := func(context.Context) (string, error) { return "", cache.ErrNotFound }
	old, changed := returns("old"+strings.Repeat("same", 100)), returns("new"+strings.Repeat("same", 100))
	for name, w := range worlds {
		open(t, w.c)
		e := forms[name]
		e.options.TTL, e.options.SkipMemory = time.Hour, true
		p := cache.MustPolicy(e.options)
		for key, then := range map[string]cache.Loader[string]{name + ":equal": old, name + ":changed": changed, name + ":deleted": none} {
			w.fill(key, old, p)
			w.hit(key, then, p)
		}
		for key, then := range map[string]cache.Loader[string]{name + ":none": none, name + ":inserted": changed} {
			for _, load := range []cache.Loader[string]{none, then} {
				if _, err := cache.Fetch(t.Context(), w.c, key, load, p); !errors.Is(err, cache.ErrNotFound) {
					t.Fatal(err)
				}
			}
		}
	}
	for name, w := range worlds {
		keys := map[string]bool{}
		for _, r := range w.want(cache.ShadowStatistics{Equal: 2, Differs: 3}) {
			_, key, _ := strings.Cut(r.Key, name+":")
			keys[key] = true
		}
		if !maps.Equal(keys, map[string]bool{"changed": true, "deleted": true, "inserted": true}) {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

// Values that FetchMany reads are checked too.
func TestShadowMany(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, nil)
	for _, all := range []map[string]string{{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "new"}} {
		got, err := cache.FetchMany(t.Context(), w.c, []string{"a", "b", "c"}, func(context.Context, []string) (map[string]string, error) {
			return all, nil
		}, fromRedis)
		if err != nil || len(got) != 3 {
			t.Fatalf("%v, %v", got, err)
		}
	}
	keys := map[string]bool{}
	for _, r := range w.want(cache.ShadowStatistics{Equal: 1, Differs: 2}) {
		keys[r.Key] = true
	}
	if !maps.Equal(keys, map[string]bool{"b": true, "c": true}) {
		t.Errorf("%v", keys)
	}
}

// mapCodec writes the pairs of a map of numbers in another order each time.
type mapCodec struct{ written *atomic.Int64 }

func (mapCodec) Name() string { return "map" }
func (c mapCodec) Marshal(v any) (data []byte, err error) {
	m := v.(map[int]int)
	for i := range len(m) {
		key := int((c.written.Load() + int64(i)) % int64(len(m)))
		data = binary.AppendVarint(binary.AppendVarint(data, int64(key)), int64(m[key]))
	}
	c.written.Add(1)
	return data, nil
}
func (mapCodec) Unmarshal(data []byte, v any) error {
	m := map[int]int{}
	for len(data) > 0 {
		key, n := binary.Varint(data)
		value, n2 := binary.Varint(data[n:])
		m[int(key)], data = int(value), data[n+n2:]
	}
	*v.(*map[int]int) = m
	return nil
}

// Values whose codec writes them in any order are equal.
func TestShadowUnorderedCodec(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, func(c *cache.Config) { c.Codec = mapCodec{&atomic.Int64{}} })
	load := func(context.Context) (map[int]int, error) { return map[int]int{0: 5, 1: 6, 2: 7, 3: 8}, nil }
	for range 2 {
		must1(t, func() (map[int]int, error) { return cache.Fetch(t.Context(), w.c, "k", load, fromRedis) })
	}
	w.want(shadowEqual)
}

// A caller that changes its value, and fields that the codec does not write, make no difference.
func TestShadowOfAChangedValue(t *testing.T) {
	t.Parallel()
	type thing struct {
		Names  []string
		hidden int
	}
	w := newShadowWorld(t, nil)
	var loads atomic.Int64
	load := func(context.Context) (*thing, error) {
		return &thing{Names: []string{"a"}, hidden: int(loads.Add(1))}, nil
	}
	for range 2 {
		got := must1(t, func() (*thing, error) { return cache.Fetch(t.Context(), w.c, "k", load, fromRedis) })
		got.Names[0] = "changed by the caller"
	}
	w.want(shadowEqual)
}

// Nothing is reported if an invalidation explains the difference, or if a loader fails, returns
// another value each time, or returns one that is not stored.
func TestShadowExplained(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, nil)
	tagged := func(tag string) *cache.Policy { return fromRedis.Tagged(tag) }
	message := func(m protocol.Message) func() { return func() { w.beater.publish(m) } }
	changed := returns("new")
	var loads atomic.Int64
	for key, e := range map[string]struct {
		load   cache.Loader[string]
		policy *cache.Policy
		after  func() // the first load has returned another value than the entry's
	}{
		"gone":      {changed, fromRedis, func() { w.unlink("gone") }},
		"replaced":  {changed, fromRedis, func() { w.unlink("replaced"); w.fill("replaced", w.db.read, fromRedis) }},
		"tag":       {changed, tagged("gone"), func() { w.unlink("stamp:gone") }},
		"named":     {changed, fromRedis, message(protocol.Message{Keys: []string{"named"}})},
		"tag named": {changed, tagged("named"), message(protocol.Message{Keys: []string{"stamp:named"}})},
		"x-pattern": {changed, fromRedis, message(protocol.Message{Patterns: []string{"x-*"}})},
		"tags":      {changed, tagged("x-many"), message(protocol.Message{Patterns: []string{"stamp:x-*"}})},
		"deleted":   {changed, fromRedis, func() { testenv.Must(t, w.c.Delete(t.Context(), "deleted")) }},
		"expired":   {changed, fromRedis, func() { testenv.Must(t, w.client.PExpire(t.Context(), "expired", time.Millisecond).Err()) }},
		"other":     {changed, tagged("other"), message(protocol.Message{Keys: []string{"other2", "stamp:other2"}, Patterns: []string{"other?*", "stamp:other?"}})},
		"random":    {func(context.Context) (string, error) { return fmt.Sprint(loads.Add(1)), nil }, fromRedis, nil},
		"fails":     {func(context.Context) (string, error) { return "", errors.New("no database") }, fromRedis, nil},
		"panics":    {func(context.Context) (string, error) { panic("no database") }, fromRedis, nil},
		"skips":     {func(ctx context.Context) (string, error) { cache.FillFrom(ctx).Skip(); return "other", nil }, fromRedis, nil},
		"late":      {func(ctx context.Context) (string, error) { <-ctx.Done(); return "other", nil }, fromRedis, nil},
	} {
		w.fill(key, w.db.read, e.policy)
		loaded := make(chan struct{}, 2)
		w.hit(key, func(ctx context.Context) (string, error) {
			defer func() { loaded <- struct{}{} }()
			return e.load(ctx)
		}, e.policy)
		if <-loaded; e.after != nil {
			e.after()
		}
	}
	if r := w.want(cache.ShadowStatistics{Gone: 9, NotDeterministic: 1, Unknown: 4, Differs: 1}); len(r) == 1 && r[0].Key != "other" {
		t.Errorf("%+v", r)
	}
}

// After a gap in the messages, nothing is known.
func TestShadowGap(t *testing.T) {
	t.Parallel()
	of := newWorld(t)
	for name, gap := range map[string]func(w *shadowWorld){
		"gap": func(w *shadowWorld) {
			w.publish(w.channel, protocol.Message{Epoch: "gap", Seq: 1000, Beat: &protocol.Beat{Source: "s"}})
		},
		"silence": func(w *shadowWorld) { w.beater.stop() },
	} {
		w := shadowWorldOf(of, name, nil)
		open(t, w.c)
		w.fill(name, w.db.read, fromRedis)
		loaded := make(chan struct{}, 2)
		w.hit(name, func(context.Context) (string, error) { loaded <- struct{}{}; return "new", nil }, fromRedis)
		<-loaded
		gap(w)
		defer w.want(shadowUnknown)
	}
}

// Without open L1 no message can be known to be missing, and nothing is loaded.
func TestShadowWithoutMessages(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, nil)
	w.beater.stop()
	testenv.Eventually(t, "memory to close", func() bool { return w.c.Healthy() != nil })
	w.fill("k", w.db.read, fromRedis)
	w.hit("k", w.db.read, fromRedis)
	w.want(shadowUnknown)
	if n := w.db.reads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// The rate and the fraction bound the checks, and values from L1 are not checked.
func TestShadowRate(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, func(c *cache.Config) { c.Shadow.Rate = 0.001 })
	none := w.cache(cache.Config{Memory: memoryOf(w.channel)})
	w.fill("k", w.db.read, fromRedis)
	for range 100 {
		wantFetch(t, "off", none, "k", w.db.read, fromRedis, "old", cache.FromRedis)
		w.hit("k", w.db.read, fromRedis)
	}
	w.want(shadowEqual)
	if n := w.db.reads.Load(); n != 2 {
		t.Errorf("%d loads", n)
	}
	fast := newShadowWorld(t, nil)
	fast.fill("k", fast.db.read, nil)
	for range 100 {
		wantFetch(t, "L1", fast.c, "k", fast.db.read, nil, "old", cache.FromMemory)
	}
	if s := fast.c.Statistics(); s.Shadow != (cache.ShadowStatistics{}) || s.Loads != 1 {
		t.Errorf("%+v", s)
	}
}

// No check starts while all loaders are in use.
func TestShadowLeavesLoaders(t *testing.T) {
	t.Parallel()
	w := newShadowWorld(t, func(c *cache.Config) { c.Loads = 1 })
	w.fill("k", w.db.read, fromRedis)
	p := w.db.paused()
	done := fetchBeside(t, w.c, "other", p.load, fromRedis)
	<-p.read
	w.hit("k", w.db.read, fromRedis)
	w.want(shadowUnknown)
	close(p.release)
	wantAnswer(t, "the other", done, "old")
	if n := w.db.reads.Load(); n != 2 {
		t.Errorf("%d loads", n)
	}
}

// No loader runs while Redis is unavailable.
func TestShadowWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	own := testenv.OwnRedis(t)
	link := newLink(t, own.Addr())
	w := shadowWorldOf(worldAt(t, own.URL()), "p", func(c *cache.Config) {
		c.Redis, c.Failures, c.Timeout = testenv.Client(t, "redis://"+link.Addr()), 1, time.Second
	})
	open(t, w.c)
	w.fill("k", w.db.read, fromRedis)
	w.db.set("new")
	w.hit("k", w.db.read, fromRedis)
	testenv.Eventually(t, "the first load", func() bool { return w.db.reads.Load() == 2 })
	link.Close()
	w.want(shadowUnknown)
	if n := w.db.reads.Load(); n != 2 {
		t.Errorf("%d loads", n)
	}
}

// Close waits neither for a shadow read nor for its loader.
func TestShadowAtClose(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]bool{"in a load": false, "between two loads": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newShadowWorld(t, func(c *cache.Config) { c.Lease = time.Hour })
			w.fill("k", w.db.read, fromRedis)
			begun, ended, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
			w.hit("k", func(ctx context.Context) (string, error) {
				close(begun)
				defer close(ended)
				if !between {
					<-release // it ignores its context
				}
				return "new", ctx.Err()
			}, fromRedis)
			<-begun
			if between {
				<-ended
			}
			began := time.Now()
			testenv.Must(t, w.c.Close())
			if took := time.Since(began); took > patient {
				t.Errorf("Close took %v", took)
			}
			close(release)
			<-ended
			w.want(shadowUnknown)
		})
	}
}

func TestShadowConfig(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	good := func() cache.Config {
		return cache.Config{Redis: testenv.Client(t, r.URL), Memory: memoryOf("c"), Shadow: cache.Shadow{Fraction: 0.5}}
	}
	for want, change := range map[string]func(*cache.Config){
		"Shadow.Fraction":      func(c *cache.Config) { c.Shadow.Fraction = 1.1 },
		"Shadow.Rate":          func(c *cache.Config) { c.Shadow.Rate = -1 },
		"Plain":                func(c *cache.Config) { c.Plain = true },
		"needs Memory.Size":    func(c *cache.Config) { c.Memory.Size = 0 },
		"Memory.Sources":       func(c *cache.Config) { c.Memory.Sources, c.Memory.MaxStaleness = nil, time.Second },
		"without MaxStaleness": func(c *cache.Config) { c.Memory.MaxStaleness = time.Second },
		"Memory.Process":       func(c *cache.Config) { c.Memory.Process = strings.Repeat("x", protocol.MaxProcess+1) },
	} {
		config := good()
		change(&config)
		if err := config.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	config := good().WithDefaults()
	testenv.Must(t, config.Validate())
	if config.Shadow.Rate != 1 || config.Memory.Process == "" {
		t.Errorf("%+v, %q", config.Shadow, config.Memory.Process)
	}
	if text, err := json.Marshal(cache.Statistics{}); err != nil || !strings.Contains(string(text), `"shadow":{"equal":0,"gone":0,"differs":0,"notDeterministic":0,"unknown":0}`) {
		t.Errorf("%s, %v", text, err)
	}
}
