package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/lab/demo/shopcache"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// A Demo is a running shop on real servers. Its methods belong to one goroutine.
type Demo struct {
	cfg       Config
	steps     steps
	place     *place
	m         *invalidation.Map
	names     names
	lifetimes lifetimes
	shop      shop
	cache     *filler
	listener  *listener
	store     *store.Store
	versions  [2]string // of the database and of Redis
	fallback  string    // see Fallback
	worker    *worker.Worker
	ended     chan error // the result of the worker's Run
	cleanups  []func(context.Context) error
}

// Start starts or connects to the servers, sets up the shop and starts the worker. The caller must
// Close the demo: a process runs one at a time, and Start waits for that. For a broken map the
// error is invalidation.Faults, for a missing program *servers.MissingError.
func Start(ctx context.Context, cfg Config) (*Demo, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p, err := newPlace(cfg)
	if err != nil {
		return nil, err
	}
	d := &Demo{cfg: cfg, steps: steps{cfg.Steps}, place: p, names: newNames(p.app)}
	for _, step := range []func(context.Context) error{
		d.readMap, d.startMySQL, d.startRedis, d.openShop, d.checkMap, d.openCache, d.startWorker,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Fallback returns a sentence that says that MariaDB is used because MySQL is missing, or nothing.
// Start has printed it to Config.Steps.
func (d *Demo) Fallback() string { return d.fallback }

// closeLimit bounds everything that Close does.
const closeLimit = 20 * time.Second

// Close stops the worker and removes everything that the demo created, in reverse order. It may be
// called twice.
func (d *Demo) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	for _, clean := range slices.Backward(d.cleanups) {
		errs = append(errs, clean(ctx))
	}
	d.cleanups = nil
	return errors.Join(errs...)
}

// atClose registers a clean-up.
func (d *Demo) atClose(clean func(context.Context) error) { d.cleanups = append(d.cleanups, clean) }

// readMap is the first step: a broken map is refused without any server.
func (d *Demo) readMap(ctx context.Context) error {
	src, err := invalidation.ReadFile(d.cfg.MapFile)
	if err != nil {
		return err
	}
	env := d.place.lookup(d.cfg.Env)
	if d.m, err = invalidation.Parse(d.cfg.MapFile, src, env); err != nil {
		return err
	}
	if d.lifetimes, err = lifetimesOf(d.m); err != nil {
		return fmt.Errorf("%s: %w", d.cfg.MapFile, err)
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.atClose(func(context.Context) error { <-turn; return nil })
	return shopcache.Map.Use(env)
}

// turn is held by the running demo: the process has one shopcache.Map, and each demo has its own
// prefix.
var turn = make(chan struct{}, 1)

func (d *Demo) startMySQL(ctx context.Context) error {
	if d.cfg.MySQLDSN != "" {
		return nil
	}
	program, err := servers.FindDatabase(d.cfg.Flavor)
	if err != nil && d.cfg.Flavor == "" {
		if other, otherErr := servers.Find(servers.KindMariaDB); otherErr == nil {
			d.fallback = fmt.Sprintf("There is no MySQL here, so the demo uses MariaDB %s.", other.Short())
			fmt.Fprintln(d.steps.w, d.fallback)
			program, err = other, nil
		}
	}
	if err != nil {
		return err
	}
	return d.steps.run(fmt.Sprintf("starting %s %s", program.Kind, program.Short()), func() (string, error) {
		if err := d.place.startMySQL(ctx, program); err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return d.place.privateMySQL.Close() })
		return "", nil
	})
}

func (d *Demo) startRedis(ctx context.Context) error {
	if d.cfg.RedisURL != "" {
		return nil
	}
	program, err := servers.Find(servers.KindRedis)
	if err != nil {
		return err
	}
	return d.steps.run(fmt.Sprintf("starting %s %s", program.Kind, program.Short()), func() (string, error) {
		if err := d.place.startRedis(ctx, program); err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return d.place.privateRedis.Close() })
		return "", nil
	})
}

// openShop creates the database, with the outbox tables and the shop's tables.
func (d *Demo) openShop(ctx context.Context) error {
	return d.steps.run("creating database "+d.place.database+" with the outbox and a shop", func() (string, error) {
		if err := d.place.createDatabase(ctx); err != nil {
			return "", err
		}
		if d.cfg.MySQLDSN != "" {
			d.atClose(d.place.dropDatabase)
		}
		store, err := store.Open(session.Config{MySQL: d.place.mysql, Worker: "demo", LookupTimeout: lookupLimit})
		if err != nil {
			return "", err
		}
		d.store = store
		d.atClose(func(context.Context) error { return store.Close() })
		done, err := migrations.Up(ctx, store.Sessions.SchemaDB())
		if err != nil {
			return "", err
		}
		if err := store.Sessions.Check(ctx); err != nil {
			return "", err
		}
		db, err := open(d.place.mysql)
		if err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return db.Close() })
		d.shop = shop{db}
		if d.versions[0], err = databaseVersion(ctx, db); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d migrations", len(done)), d.shop.create(ctx)
	})
}

// openCache subscribes, and fills Redis as the shop's readers do.
func (d *Demo) openCache(ctx context.Context) error {
	return d.steps.run("filling the cache in Redis", func() (string, error) {
		at, err := redisurl.Parse(d.place.redisURL, false)
		if err != nil {
			return "", err
		}
		k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: answerLimit})
		if err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return k.Close() })
		d.versions[1] = redisVersion(ctx, k.Nodes.Client())
		readers, err := d.newCache(k.Nodes.Client())
		if err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return readers.Close() })
		d.cache = &filler{shop: d.shop, redis: k.Nodes.Client(), readers: readers, lifetimes: d.lifetimes}
		if d.cfg.RedisURL != "" {
			d.atClose(d.cache.clear)
		}
		if d.listener, err = listen(ctx, k.Nodes.Client(), d.m.Channel(), d.place.channel); err != nil {
			return "", err
		}
		d.atClose(func(context.Context) error { return d.listener.close() })
		filled, err := d.cache.fill(ctx, false)
		return fmt.Sprintf("%d keys", filled), err
	})
}

// startWorker runs the worker as "unstale run" does, with its default settings.
func (d *Demo) startWorker(ctx context.Context) error {
	name := fmt.Sprintf("starting the worker with map %s, version %s", d.cfg.MapFile, d.m.Version())
	return d.steps.run(name, func() (string, error) {
		at, err := redisurl.Parse(d.place.redisURL, false)
		if err != nil {
			return "", err
		}
		b := &beacons{names: map[string]bool{}, fields: map[[2]string]bool{}}
		if d.cfg.RedisURL != "" {
			d.atClose(func(ctx context.Context) error { return b.clear(ctx, d.cache.redis) })
		}
		w, err := worker.New(worker.Config{
			MySQL: d.place.mysql, Redis: at, Map: d.m, Name: "demo", LookupTimeout: lookupLimit, Logger: d.cfg.Logger,
			InstrumentRedis: func(c redis.UniversalClient) { c.AddHook(b) },
		})
		if err != nil {
			return "", err
		}
		d.worker = w
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		d.ended = make(chan error, 1)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			d.ended <- w.Run(working)
		}()
		d.atClose(func(context.Context) error { stop(); <-gone; return nil })
		return "", nil
	})
}
