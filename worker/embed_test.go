package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A guest is a service that embeds a worker with the exported API of the module.
type guest struct {
	t     *testing.T
	env   *testenv.Database
	redis *testenv.RedisServer
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	g := &guest{t, testenv.MySQL(t), testenv.Redis(t)}
	schematest.Up(t, g.env.DB)
	return g
}

// config returns the configuration of the service: its own clients, and the path of the map.
func (g *guest) config() worker.Config {
	g.t.Helper()
	db, err := mysql.ParseDSN(g.env.DSN)
	if err != nil {
		g.t.Fatal(err)
	}
	one := g.redis.Client.Options()
	file := filepath.Join(g.t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(g.mapText()), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return worker.Config{
		MySQL: db, Redis: &redis.UniversalOptions{Addrs: []string{one.Addr}, DB: one.DB}, MapFile: file, MapEnv: mapEnv,
		// a busy machine, and a Redis that others share
		Logger: slog.New(slog.DiscardHandler), RedisTimeout: 5 * time.Second, WakeChannel: g.redis.Channel("wake"),
	}
}

func (g *guest) mapText() string {
	return "version: 1\npublish: {channel: \"" + g.redis.Channel("invalidate") + "\"}\nentities: {thing: {keys: [\"shop:thing:{id}\"]}}\n"
}

// change writes a key and the row that makes it stale.
func (g *guest) change(id string) {
	g.t.Helper()
	if err := g.redis.Client.Set(g.t.Context(), "shop:thing:"+id, "old", time.Hour).Err(); err != nil {
		g.t.Fatal(err)
	}
	err := outbox.InTx(g.t.Context(), g.env.DB, func(tx *sql.Tx) error {
		return outbox.Enqueue(g.t.Context(), tx, outbox.Invalidation{Entity: "thing", ID: id})
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// run runs a worker until the function that it returns is called, which returns what Run returned.
func (g *guest) run(w *worker.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(g.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// sessions counts the worker's in the server: the service has one.
func (g *guest) sessions() (n int) {
	g.t.Helper()
	err := g.env.DB.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()").Scan(&n)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// A service embeds a worker: keys of committed rows are deleted, its metrics are in the registry of
// the service, and when Run has returned no connection is open. Then it can run again.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	cfg := g.config()
	g.env.DB.SetMaxOpenConns(1)
	given := cfg.MySQL.FormatDSN()
	clients := 0
	cfg.InstrumentRedis = func(redis.UniversalClient) { clients++ }
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	figures := prometheus.NewRegistry()
	figures.MustRegister(w.Metrics())
	if w.Ready() == nil || w.Alive() != nil || len(w.Map().Entities()) != 1 {
		t.Errorf("before Run: ready %v, alive %v", w.Ready(), w.Alive())
	}
	for _, id := range []string{"1", "2"} {
		stop := g.run(w)
		g.change(id)
		testenv.Eventually(t, "the key goes", func() bool { return g.redis.Client.Exists(t.Context(), "shop:thing:"+id).Val() == 0 })
		testenv.Eventually(t, "the worker is ready", func() bool { return w.Ready() == nil })
		if n := g.sessions(); n == 0 {
			t.Error("the worker has no session: the test has lost its point")
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		testenv.Eventually(t, "its sessions are closed", func() bool { return g.sessions() == 0 })
	}
	got, err := figures.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got {
		if f.GetName() == "unstale_keys_unlinked_total" && f.Metric[0].Counter.GetValue() != 2 {
			t.Errorf("%s is %v", f.GetName(), f.Metric[0])
		}
		if !strings.HasPrefix(f.GetName(), "unstale_") {
			t.Errorf("%s is none of the worker's figures", f.GetName())
		}
	}
	if cfg.MySQL.FormatDSN() != given || clients != 2 {
		t.Errorf("the configuration was changed to %s; %d clients", cfg.MySQL.FormatDSN(), clients)
	}
}

// A job processes the existing rows, with a map that the service compiled.
func TestEmbeddedDrain(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	cfg := g.config()
	m, err := invalidation.Parse("map", []byte(g.mapText()), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MapFile, cfg.Map = "", m
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Reload() // there is nothing to read
	g.change("1")
	got, err := w.Drain(t.Context())
	if err != nil || got.Unlinked != 1 || g.redis.Client.Exists(t.Context(), "shop:thing:1").Val() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// An error that waiting cannot fix ends Run and contains the fix. An unavailable server does not
// end Run, and a stop while it waits is not an error.
func TestEmbeddedStart(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	bare := testenv.MySQL(t)
	cfg := g.config()
	cfg.MySQL.DBName = bare.Name
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, migrations.ErrSchema) || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("without tables: %v", err)
	}
	if _, err := w.Drain(t.Context()); !errors.Is(err, migrations.ErrSchema) {
		t.Errorf("without tables: %v", err)
	}
	away := g.config()
	away.MySQL.Addr = "127.0.0.1:1"
	if w, err = worker.New(away); err != nil {
		t.Fatal(err)
	}
	stop := g.run(w)
	testenv.Eventually(t, "readiness tells of the outage", func() bool { return w.Ready() != nil && strings.Contains(w.Ready().Error(), "connect") })
	if err := stop(); err != nil || w.Alive() != nil {
		t.Errorf("run: %v; alive: %v", err, w.Alive())
	}
}

// A configuration is refused with the field, its value and the rule, and without a password.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := func() worker.Config {
		db, err := mysql.ParseDSN("user:secret@tcp(db:3306)/shop")
		if err != nil {
			t.Fatal(err)
		}
		at := &redis.UniversalOptions{Addrs: []string{"cache:6379"}, Password: "secret"}
		m, err := invalidation.Parse("map", []byte("version: 1\nentities: {thing: {keys: [\"shop:{id}\"]}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return worker.Config{MySQL: db, Redis: at, Map: m}
	}
	if _, err := worker.New(good()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*worker.Config){
		"no mysql is given":                 func(c *worker.Config) { c.MySQL = nil },
		"names no database":                 func(c *worker.Config) { c.MySQL.DBName = "" },
		"foreign_key_checks: neither":       func(c *worker.Config) { c.MySQL.Params = map[string]string{"foreign_key_checks": "0"} },
		"redis: option Redis is missing":    func(c *worker.Config) { c.Redis = nil },
		"redis: option Addrs is empty":      func(c *worker.Config) { c.Redis.Addrs = nil },
		"uses only database 0 of a Cluster": func(c *worker.Config) { c.Redis.IsClusterMode, c.Redis.DB = true, 1 },
		"redis: option PoolSize is 1":       func(c *worker.Config) { c.Redis.PoolSize = 1 },
		"redis: option Timeout is 1ms":      func(c *worker.Config) { c.RedisTimeout = time.Millisecond },
		"no map is given":                   func(c *worker.Config) { c.Map = nil },
		"two maps are given":                func(c *worker.Config) { c.MapFile = "mapping.yaml" },
		"no such file":                      func(c *worker.Config) { c.Map, c.MapFile = nil, "no/such/file" },
		"claim timeout 1s: wanted whole":    func(c *worker.Config) { c.ClaimTimeout = time.Second },
		"lookup timeout 3s: wanted":         func(c *worker.Config) { c.LookupTimeout = 3 * time.Second },
		"worker name":                       func(c *worker.Config) { c.Name = strings.Repeat("x", 65) },
		"lock retention 24h0m0s: wanted":    func(c *worker.Config) { c.LockRetention = 24 * time.Hour },
		"batch rows -1: wanted 1 to":        func(c *worker.Config) { c.BatchRows = -1 },
		`gauge schedule "often"`:            func(c *worker.Config) { c.GaugeSchedule = "often" },
	} {
		cfg := good()
		change(&cfg)
		w, err := worker.New(cfg)
		if w != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, wanted %s", err, want)
		}
	}
}
