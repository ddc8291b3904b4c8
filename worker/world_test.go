package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// A world is a database, a Redis and a map of one test's own.
type world struct {
	t       testing.TB
	dsn     string
	db      *sql.DB
	url     string
	redis   *redis.Client
	channel string
	mapFile string

	messageKeys   []protocol.MessageKey // of readers
	lookupTimeout time.Duration         // 0: one for a busy machine
}

// newWorld has a migrated database, an empty Redis and the given map; "" is the shipped map with a
// longer lease. It replaces the channel of the map, since all databases of a Redis share channels.
func newWorld(t testing.TB, mapText string) *world {
	t.Helper()
	env, r := testenv.MySQL(t), testenv.Redis(t)
	w := &world{t: t, dsn: env.DSN, db: env.DB, url: r.URL, redis: r.Client, channel: r.Channel("invalidate")}
	schematest.Up(t, env.DB)
	if mapText == "" {
		src, err := os.ReadFile("../mapping.yaml")
		if err != nil {
			t.Fatal(err)
		}
		// A second sweep for one change, on a busy machine, would delete the keys of a later one.
		mapText = strings.Replace(string(src), "\nlease: 10s", "\nlease: 1h", 1)
	}
	w.mapFile = filepath.Join(t.TempDir(), "mapping.yaml")
	w.writeMap(mapText)
	return w
}

// onOwnRedis replaces the Redis of the world with a process that the test can kill and restart.
func (w *world) onOwnRedis() *servers.Redis {
	w.t.Helper()
	server := testenv.OwnRedis(w.t)
	w.url = server.URL()
	w.redis = redis.NewClient(&redis.Options{Addr: server.Addr()})
	w.t.Cleanup(func() { _ = w.redis.Close() })
	return server
}

func (w *world) writeMap(text string) {
	w.t.Helper()
	text = strings.ReplaceAll(text, "cache:invalidate", w.channel)
	// Renamed into place, as deployments do.
	if err := os.WriteFile(w.mapFile+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.mapFile+".new", w.mapFile); err != nil {
		w.t.Fatal(err)
	}
}

// mapEnv is the environment of maps: the shipped one requires APP_ENV.
func mapEnv(name string) (string, bool) {
	if name == "APP_ENV" {
		return "prod", true
	}
	return "", false
}

// A running is a worker with its surroundings.
type running struct {
	*worker.Engine
	store *store.Store
	maps  *worker.MapFile
	redis worker.Redis
	log   *logBuffer
}

// worker builds a worker; wrap may put something between it and Redis.
func (w *world) worker(cfg worker.Config, wrap ...func(worker.Redis) worker.Redis) *running {
	w.t.Helper()
	lookups := w.lookupTimeout
	if lookups == 0 {
		lookups = 2 * time.Second // a busy machine takes its time
	}
	dsn, err := session.ParseDSN(w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	store, err := store.Open(session.Config{MySQL: dsn, Worker: "test", ClaimTimeout: 10 * time.Second, LookupTimeout: lookups})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = store.Close() })
	ks := w.keyspace(5 * time.Second)
	maps, err := worker.OpenMapFile(w.mapFile, mapEnv)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &running{store: store, maps: maps, redis: worker.NewRedis(ks), log: &logBuffer{}}
	for _, f := range wrap {
		r.redis = f(r.redis)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the worker's log:\n%s", r.log)
		}
	})
	if cfg.WakeChannel == "" {
		cfg.WakeChannel = "-"
	}
	r.Engine, err = worker.NewEngine(cfg, store, r.redis, maps, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// keyspace opens the world's Redis as a worker does.
func (w *world) keyspace(timeout time.Duration) *keyspace.Keyspace {
	w.t.Helper()
	at, err := redisurl.Parse(w.url, false)
	if err != nil {
		w.t.Fatal(err)
	}
	ks, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: timeout, BeaconTTL: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ks.Close() })
	return ks
}

// start runs the worker until the test ends or stop is called, which waits for it.
func (r *running) start(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (r *running) drain(t testing.TB) worker.Result {
	t.Helper()
	total, err := r.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func (w *world) enqueue(invs ...outbox.Invalidation) {
	w.t.Helper()
	err := outbox.InTx(w.t.Context(), w.db, func(tx *sql.Tx) error { return outbox.Enqueue(w.t.Context(), tx, invs...) })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), query, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(table string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) set(keys ...string) {
	w.t.Helper()
	pipe := w.redis.Pipeline()
	for _, k := range keys {
		pipe.Set(w.t.Context(), k, "old", time.Hour)
	}
	if _, err := pipe.Exec(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// left lists the keys that are in Redis, sorted, the state of workers left out.
func (w *world) left() []string {
	w.t.Helper()
	keys := []string{}
	for it := w.redis.Scan(w.t.Context(), 0, "", 10_000).Iterator(); it.Next(w.t.Context()); {
		if !strings.HasPrefix(it.Val(), "unstale:") || strings.HasPrefix(it.Val(), "unstale:set:") {
			keys = append(keys, it.Val())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// An ear receives the messages of the worker.
type ear struct {
	t   testing.TB
	sub *redis.PubSub
}

func (w *world) listen() *ear {
	w.t.Helper()
	sub := w.redis.Subscribe(w.t.Context(), w.channel)
	w.t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return &ear{w.t, sub}
}

// raw returns the next message.
func (e *ear) raw() string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	m, err := e.sub.ReceiveMessage(ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	return m.Payload
}

// heard collects messages until they name n keys and patterns, and returns those, sorted.
func (e *ear) heard(n int) (keys, patterns []string) {
	e.t.Helper()
	keys, patterns = []string{}, []string{}
	for len(keys)+len(patterns) < n {
		m, err := protocol.DecodeMessage([]byte(e.raw()))
		if err != nil {
			e.t.Fatal(err)
		}
		keys, patterns = append(keys, m.Keys...), append(patterns, m.Patterns...)
	}
	slices.Sort(keys)
	slices.Sort(patterns)
	return keys, patterns
}

// patience bounds waits for what must happen; it is never waited out when all is well.
const patience = 30 * time.Second

// A logBuffer keeps what the worker logs.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), part)
}

// take empties the buffer.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func texts(n int, format string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i+1)
	}
	return out
}
