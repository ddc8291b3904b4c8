package maintenance_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	testenv.Main(m)
}

// A bench has a Checker at a Redis, with what it reports.
type bench struct {
	*maintenance.SpotChecker
	t     testing.TB
	k     *keyspace.Keyspace
	redis redis.UniversalClient

	over           int64 // by the clock of Redis, at most, when the last batch was unlinked
	results        []maintenance.SpotResult
	looked         []int // how many keys each look has had
	kept           []maintenance.SpotStale
	published      []string
	repaired       int
	looks, repairs bool // the account may not
	counts         map[store.Minute]store.Checks
	log            bytes.Buffer
	state          *maintenance.State
}

func newBench(t testing.TB, url string, client redis.UniversalClient) *bench {
	t.Helper()
	return newBenchOf(t, url, client, 1000)
}

func newBenchOf(t testing.TB, url string, client redis.UniversalClient, rate int) *bench {
	t.Helper()
	o, err := redisurl.Parse(url, false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyspace.Open(keyspace.Options{Redis: o, BeaconTTL: time.Hour, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	b := &bench{t: t, k: k, redis: client, counts: map[store.Minute]store.Checks{}}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	b.state = newState()
	b.SpotChecker = maintenance.NewSpotChecker(maintenance.Deps{Redis: k.Port(), State: b.state, Channels: b, Log: log}, rate, b, b)
	b.Tick(t.Context(), 0)
	return b
}

// newState returns the state of a worker that works.
func newState() *maintenance.State {
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}) }
	s := maintenance.NewState(slog.New(slog.DiscardHandler), maintenance.StateMetrics{
		Up: gauge(), Paused: gauge(), Sweeping: gauge(), Subscribed: gauge(), Away: gauge(),
		Stalled:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"reason"}),
		Outages:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c"}, []string{"state"}),
		Contention: prometheus.NewCounter(prometheus.CounterOpts{Name: "c"}),
	})
	s.SetPaused(false, nil)
	s.Loop.Polled()
	return s
}

// Publish and Numbered implement maintenance.Channels, NoteChecks and KeepStale maintenance.SpotRecords.
func (b *bench) Publish(_ context.Context, news keyspace.News) (keyspace.Published, error) {
	b.published = append(b.published, news.Keys...)
	return keyspace.Published{}, nil
}

func (b *bench) Numbered() []maintenance.HeartbeatChannel { return nil }

func (b *bench) NoteChecks(_ context.Context, minute store.Minute, c store.Checks) error {
	b.counts[minute] = c
	return nil
}

func (b *bench) KeepStale(_ context.Context, list []maintenance.SpotStale) error {
	b.kept = append(b.kept, list...)
	return nil
}

func (b *bench) Looked(keys int)                  { b.looked = append(b.looked, keys) }
func (b *bench) Checked(r maintenance.SpotResult) { b.results = append(b.results, r) }
func (b *bench) Repaired()                        { b.repaired++ }
func (b *bench) Off(looks, repairs bool)          { b.looks, b.repairs = looks, repairs }

// settle unlinks a key in a batch of its own, offers it, and returns the time before the UNLINK.
func (b *bench) settle(key string, hold time.Duration) (unlinked int64) {
	b.t.Helper()
	u, err := b.k.Unlinker.Unlink(b.t.Context(), []keyspace.Target{{Key: key, Hold: hold}})
	if err != nil || len(u.Readings) == 0 {
		b.t.Fatal(err, u)
	}
	b.offer(u, maintenance.SpotKey{Key: key, Entity: "product", ID: "7", Trace: "trace", Row: 1, Hold: hold, IsTag: len(key) > 6 && key[:6] == protocol.StampPrefix})
	addr := ""
	if cluster, ok := b.redis.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(b.t.Context(), key)
		if err != nil {
			b.t.Fatal(err)
		}
		addr = master.Options().Addr
	}
	for _, r := range u.Readings {
		if r.Addr == addr {
			unlinked = int64(r.Micros)
		}
	}
	b.over = unlinked + u.Ended.Sub(u.Readings[0].Sent).Microseconds()
	return unlinked
}

// later returns an entry with a lease time after the last UNLINK for certain.
func (b *bench) later(key string) string {
	b.t.Helper()
	testenv.Eventually(b.t, "a later time", func() bool { return b.now(key) > b.over })
	return entry(b.now(key))
}

func (b *bench) offer(u keyspace.Unlinked, keys ...maintenance.SpotKey) {
	b.Offer(maintenance.SpotBatch{
		Unlinked: u, SettledAt: time.Unix(6000, 0),
	}, func(n int) []maintenance.SpotKey { return keys[:min(n, len(keys))] })
}

// set stores a text.
func (b *bench) set(key, text string) {
	b.t.Helper()
	if err := b.redis.Set(b.t.Context(), key, text, time.Hour).Err(); err != nil {
		b.t.Fatal(err)
	}
}

// exists reports whether there is a key.
func (b *bench) exists(key string) bool {
	b.t.Helper()
	n, err := b.redis.Exists(b.t.Context(), key).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return n == 1
}

// entry returns an entry with a lease time.
func entry(leased int64) string {
	return fmt.Sprintf(`{"e":%d,"b":%d,"v":"value"}`, leased/1000+3_600_000, leased)
}

// now returns the time of Redis.
func (b *bench) now(key string) int64 {
	b.t.Helper()
	client := b.redis
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(b.t.Context(), key)
		if err != nil {
			b.t.Fatal(err)
		}
		client = master
	}
	now, err := client.(*redis.Client).Time(b.t.Context()).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return now.UnixMicro()
}

// wantResults makes all looks of the checks, and compares their results since the last call.
func (b *bench) wantResults(name string, want ...maintenance.SpotResult) {
	b.t.Helper()
	for _, in := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Minute} { // the first looks at one key
		b.Tick(b.t.Context(), in)
	}
	if !slices.Equal(b.results, want) {
		b.t.Errorf("%s: got %v, want %v", name, b.results, want)
	}
	b.results = nil
}

func single(t testing.TB) *bench {
	t.Helper()
	server := testenv.OwnRedis(t)
	return newBench(t, server.URL(), testenv.Client(t, "redis://"+server.Addr()))
}
