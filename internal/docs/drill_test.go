package docs

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cacheprom"
	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// drillMap covers all drills. The worker's account has no access to keys elsewhere.
const drillMap = `version: 1
lease: 1s
reads: {page: {key: "zahraah:product:{product_id}", ttl: 30m}}
entities:
  product: {keys: ["zahraah:product:{id}"]}
  list:    {patterns: ["zahraah:list:{id}:*"], sets: ["tag:{id}"]}
  foreign: {keys: ["elsewhere:{id}"]}
`

// A drill has all components in which causes of alerts can occur:
//
//   - a worker with its Redis and a reader of that Redis
//   - a worker that is soon overloaded
//   - a worker of a Redis Cluster
//   - an application that uses locks and limits
//   - a Redis under load from other applications
type drill struct {
	t          *testing.T
	prometheus *prometheusServer

	first             worker.Config // of the first worker, and of one that starts later
	db, overloaded    *sql.DB       // outboxes of the first two workers
	hangable          *sql.DB       // the outbox of the third worker, on its own server
	ready             []func() error
	stops             []func()        // of workers
	mapFile, otherMap string          // of the first worker, and of all others
	links             []*servers.Link // of the first two workers to their Redis
	spare             net.Listener    // address for the metrics of a worker that starts later

	cache   *servers.Redis // of the first two workers
	keys    *redis.Client
	reader  *cache.Cache
	page    *cache.ReadEntry // that the reader fetches
	saved   string           // the last batch of the journal when the cache was saved
	other   *servers.Redis
	noise   *redis.Client // of other
	cluster *testenv.Cluster

	capturer *capture.Capturer
	compared comparison // of its triggers

	state  *servers.Redis // of locks and limits
	counts *redis.Client
	locks  *lock.Locker
	codes  *limit.Limiter
}

func startDrill(t *testing.T) *drill {
	t.Helper()
	d := &drill{t: t, mapFile: filepath.Join(t.TempDir(), "mapping.yaml"), otherMap: filepath.Join(t.TempDir(), "mapping.yaml"), spare: listen(t)}
	d.write(d.mapFile, drillMap)
	d.write(d.otherMap, drillMap)
	limit, exporter := []string{"--maxmemory", "100mb"}, aclRole("exporter", "change-me-6", doctor.ACLRules(doctor.Exporter, doctor.ACLOptions{}))
	m, err := invalidation.Parse("mapping.yaml", []byte(drillMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	rules := doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: m, Wake: protocol.DefaultWakeChannel})
	carrier := aclRole("unstale", "change-me-3", slices.DeleteFunc(rules, func(rule string) bool { return rule == "~elsewhere:*" }))
	d.cache = testenv.OwnRedis(t, slices.Concat(limit, exporter, carrier)...)
	d.other = testenv.OwnRedis(t, slices.Concat(limit, exporter, []string{"--maxclients", "50", "--enable-debug-command", "yes"})...)
	d.cluster = testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")
	d.keys, d.noise = d.client(d.cache), d.client(d.other)
	d.first = worker.Config{Redis: d.throughLink(), MapFile: d.mapFile}
	overloaded := worker.Config{Redis: d.throughLink(), MapFile: d.otherMap, BatchRows: 1}
	overloaded.Redis.DB = 1 // the keys of another database
	clustered := worker.Config{Redis: &redis.UniversalOptions{Addrs: d.cluster.Client.Options().Addrs, IsClusterMode: true}, MapFile: d.otherMap}
	d.db, d.overloaded = d.outbox(&d.first, testenv.MySQL(t)), d.outbox(&overloaded, testenv.MySQL(t))
	d.hangable = d.outbox(&clustered, testenv.OwnDatabase(t, servers.BinaryLog...))

	targets := []string{d.spare.Addr().String()}
	for _, c := range []worker.Config{d.first, overloaded, clustered} {
		l := listen(t)
		d.carry(c, l)
		targets = append(targets, l.Addr().String())
	}
	targets = append(targets, d.read(), d.lockAndLimit(), d.capture())
	for _, server := range []*servers.Redis{d.cache, d.other} {
		address := listenAddress(t)
		launch(t, exec.Command(monitoring(t, "prometheus-redis-exporter", "redis_exporter"), "-redis.addr", server.Addr(), "-redis.user", "exporter",
			"-redis.password", "change-me-6", "-web.listen-address", address))
		targets = append(targets, address)
	}
	d.load()
	d.prometheus = startPrometheus(t, targets...)
	return d
}

// outbox prepares the outbox of a worker.
func (d *drill) outbox(c *worker.Config, env *testenv.Database) *sql.DB {
	d.t.Helper()
	schematest.Up(d.t, env.DB)
	var err error
	if c.MySQL, err = mysql.ParseDSN(env.DSN); err != nil {
		d.t.Fatal(err)
	}
	return env.DB
}

// aclRole returns server options that create an account with rules of unstale acl.
func aclRole(user, password string, rules []string) []string {
	return append([]string{"--user", user, "on", ">" + password, "-@all"}, rules...)
}

// aclUser returns server options that create an account of a page.
func aclUser(t *testing.T, page, command string) []string {
	t.Helper()
	return append([]string{"--user"}, strings.Fields(onlyBlock(t, page, "redis", command).text)[2:]...)
}

func (d *drill) write(file, text string) {
	d.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *drill) client(server *servers.Redis) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, ReadTimeout: 10 * time.Second})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// throughLink returns the worker's path to the cache, through a new link.
func (d *drill) throughLink() *redis.UniversalOptions {
	d.t.Helper()
	link, err := servers.NewLink("redis", d.cache.Addr())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(link.Close)
	d.links = append(d.links, link)
	return &redis.UniversalOptions{Addrs: []string{link.Addr()}, Username: "unstale", Password: "change-me-3"}
}

// listen opens a port for metrics. A client that connects waits until the metrics are served.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// carry runs a worker, and serves its metrics from when it is ready until it is stopped.
func (d *drill) carry(cfg worker.Config, l net.Listener) {
	d.t.Helper()
	cfg.RedisTimeout, cfg.GaugeSchedule, cfg.RetentionSchedule, cfg.Logger = 5*time.Second, "@every 1s", "@every 1h", slog.New(slog.DiscardHandler)
	w, err := worker.New(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(stop)
	testenv.Eventually(d.t, "a worker at work", func() bool { return w.Ready() == nil })
	served := &httptest.Server{Listener: l, Config: &http.Server{Handler: exported(registered(w.Metrics())), ReadHeaderTimeout: time.Minute}}
	served.Start()
	d.t.Cleanup(served.Close)
	d.ready, d.stops = append(d.ready, w.Ready), append(d.stops, func() { stop(); served.Close() })
}

// read starts a reader with L1, and serves its metrics.
func (d *drill) read() (address string) {
	d.t.Helper()
	m, err := invalidation.Parse("map", []byte(drillMap), nil)
	d.must(err)
	d.page = cache.NewReadMap(m.Reads().Hash()).Entry("page", cache.Options{TTL: 30 * time.Minute})
	source, err := outbox.Source(d.t.Context(), d.db)
	d.must(err)
	d.reader, err = cache.New(cache.Config{
		Redis: d.keys, Prefix: "zahraah:", Lease: time.Second, Timeout: 5 * time.Second, Memory: cache.Memory{Size: 1000, Sources: []string{source}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = d.reader.Close() })
	testenv.Eventually(d.t, "a healthy reader", func() bool { return d.reader.Healthy() == nil })
	served := httptest.NewServer(exported(registered(cacheprom.New(d.reader, nil))))
	d.t.Cleanup(served.Close)
	return served.URL
}

func exported(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}

func registered(c prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	return registry
}

// load runs in all drills: applications write and read. Some of these calls fail while a cause is
// active.
func (d *drill) load() {
	d.t.Helper()
	d.stockOther()
	for every, work := range map[time.Duration]func(ctx context.Context, n int){
		50 * time.Millisecond: func(ctx context.Context, n int) {
			_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', ?)", n%1000)
			d.fetch(ctx, fmt.Sprint("product:", n%20), nil)
		},
		time.Second: func(ctx context.Context, n int) {
			_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('list', ?)", n)
			_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('product', ?, UTC_TIMESTAMP())", n)
		},
		100 * time.Millisecond: func(ctx context.Context, _ int) { d.getOther(ctx, "stocked") },
		150 * time.Millisecond: func(ctx context.Context, n int) { d.lockOnce(ctx, fmt.Sprint("order:", n%20), func() {}) }, // may wait
		160 * time.Millisecond: func(ctx context.Context, n int) { _, _ = d.codes.Take(ctx, fmt.Sprint(n%20)) },
	} {
		d.steadily(every, work)
	}
}

// steadily repeats work until stop, which waits for it.
func (d *drill) steadily(every time.Duration, work func(ctx context.Context, n int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				work(ctx, n)
			}
		}
	})
	stop = func() { cancel(); group.Wait() }
	d.t.Cleanup(stop)
	return stop
}

// fetch reads a value like an application whose loader may fail.
func (d *drill) fetch(ctx context.Context, key string, fails error) {
	_, _ = cache.FetchRead(ctx, d.reader, d.page.Read("zahraah:"+key), func(context.Context) (string, error) { return "value", fails })
}

const stock = 20

// stockOther stores the keys that clients of the other Redis read.
func (d *drill) stockOther() {
	d.t.Helper()
	for n := range stock {
		if err := d.noise.Set(d.t.Context(), fmt.Sprint("stocked:", n), "value", 0).Err(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// getOther reads keys from the other Redis.
func (d *drill) getOther(ctx context.Context, prefix string) {
	_, _ = d.noise.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range stock {
			p.Get(ctx, fmt.Sprint(prefix, ":", n))
		}
		return nil
	})
}
