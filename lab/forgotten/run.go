package forgotten

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

const (
	database  = "shop"
	processes = 4 // caches
	clients   = 4 // per cache
	lease     = 2 * time.Second
	look      = 100 * time.Millisecond
)

// Run runs the shop: reads and writes with rows, then each path. It ends when all paths are found,
// or after the patience.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	dir, end, err := rig.Begin("forgotten", &cfg.Seed, cfg.Progress)
	if err != nil {
		return nil, err
	}
	defer end()
	mysql, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: rig.MySQLArgs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mysql.Close()) }()
	node, err := rig.StartNode(ctx, rig.NodeOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	err = rig.Prepare(ctx, mysql, "CREATE DATABASE "+database, "CREATE USER 'unstale'@'%' IDENTIFIED BY 'forgotten'", "GRANT ALL ON "+database+".* TO 'unstale'@'%'")
	if err != nil {
		return nil, err
	}
	fleet, err := rig.New(cfg.Binary, dir, shopMap, []string{
		"MYSQL_DSN=unstale:forgotten@tcp(" + mysql.Addr() + ")/" + database, "REDIS_URL=" + node.Server.URL(),
	})
	if err != nil {
		return nil, err
	}
	defer fleet.KillAll()
	if _, err := fleet.Call(ctx, "migrate", "up"); err != nil {
		return nil, err
	}
	for range 2 {
		if err := fleet.Start(500); err != nil {
			return nil, err
		}
	}
	s := &shop{keys: shopKeys()}
	s.reads, s.loaded = make([]atomic.Int64, len(s.keys)), make([]atomic.Int64, len(Paths))
	for i := range s.loaded {
		s.loaded[i].Store(-1)
	}
	if s.db, err = sql.Open("mysql", rig.DSN(mysql, database)); err != nil {
		return nil, err
	}
	defer s.db.Close()
	s.db.SetMaxIdleConns(32)
	s.db.SetMaxOpenConns(32)
	if err := s.open(ctx, node.Server.Addr(), cfg); err != nil {
		return nil, err
	}
	defer s.close()
	began := time.Now()
	report = &Report{Seed: cfg.Seed, Servers: fmt.Sprintf("%s %s and Redis %s", mysql.Flavor(), servers.ShortVersion(mysql.Version()), node.Server.Version())}
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for i, c := range s.caches {
		for j := range clients {
			group.Go(func() { s.read(running, c, rand.New(rand.NewPCG(cfg.Seed, uint64(i<<8|j)))) })
		}
	}
	group.Go(func() {
		s.write(running, rand.New(rand.NewPCG(cfg.Seed, 1<<32)), time.Second/time.Duration(cfg.Writes))
	})
	err = s.play(ctx, cfg, report)
	report.Took = time.Since(began)
	if broken := s.errs.Load(); broken != nil {
		err = errors.Join(err, *broken)
	}
	return report, errors.Join(err, fleet.Alive())
}

// open creates the tables and the caches.
func (s *shop) open(ctx context.Context, addr string, cfg Config) error {
	for _, statement := range schema {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	source := ""
	if err := s.db.QueryRowContext(ctx, "SELECT id FROM cache_outbox_source").Scan(&source); err != nil {
		return err
	}
	for i := range processes {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		c, err := cache.New(cache.Config{
			Redis: client, Lease: lease, NotFound: sql.ErrNoRows, Timeout: time.Second, Logger: slog.New(slog.DiscardHandler),
			Memory: cache.Memory{Size: 1000, TTL: time.Second, Sources: []string{source}, Process: fmt.Sprint("web-", i+1)},
			Shadow: cache.Shadow{Fraction: cfg.Fraction, Rate: 1000},
		})
		if err != nil {
			return err
		}
		s.caches, s.clients = append(s.caches, c), append(s.clients, client)
	}
	return rig.Wait(ctx, time.Minute, look, func() (bool, error) {
		return !slices.ContainsFunc(s.caches, func(c *cache.Cache) bool { return c.Healthy() != nil }), nil
	})
}

func (s *shop) close() {
	for i, c := range s.caches {
		_ = c.Close() // the servers end with the run
		_ = s.clients[i].Close()
	}
}

// play waits for the reads without a forgotten write, and then makes all of them.
func (s *shop) play(ctx context.Context, cfg Config, r *Report) error {
	if err := rig.Wait(ctx, 24*time.Hour, look, func() (bool, error) { return s.total() >= int64(cfg.Reads), nil }); err != nil {
		return err
	}
	r.Reads, r.Writes, r.Shadow = s.total(), s.wrote.Load(), s.shadows()
	// what differs now is reported and confirmed by then
	if err := sleep.For(ctx, lease+10*time.Second); err != nil {
		return err
	}
	found, err := s.confirmed(ctx)
	if err != nil {
		return err
	}
	for key := range found {
		r.False = append(r.False, key)
	}
	slices.Sort(r.False)
	fmt.Fprintf(cfg.Progress, "forgotten: %d reads, %d writes: %d confirmed\n", r.Reads, r.Writes, len(r.False))
	began, reads := time.Now(), make([]int64, len(Paths))
	for i, p := range Paths {
		reads[i] = s.reads[i].Load() // the keys of paths come first
		if err := s.forget(ctx, p); err != nil {
			return err
		}
		s.loaded[i].Store(0)
		r.Found = append(r.Found, Found{Path: p.Name, Key: p.key})
	}
	end := began.Add(cfg.Patience)
	return rig.Wait(ctx, 2*cfg.Patience, look, func() (bool, error) {
		found, err := s.confirmed(ctx)
		if err != nil {
			return false, err
		}
		for i := range r.Found {
			f := &r.Found[i]
			if f.Outcome == "" && found[f.Key] != "" {
				f.Outcome, f.Reads, f.Took = found[f.Key], max(s.loaded[i].Load()-reads[i], 1), time.Since(began)
				fmt.Fprintf(cfg.Progress, "forgotten: %s: after %d reads of %s\n", f.Path, f.Reads, f.Key)
			}
		}
		return r.Missed() == 0 || time.Now().After(end), nil
	})
}

// forget makes the write of a path.
func (s *shop) forget(ctx context.Context, p Path) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range p.write {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// confirmed returns the outcomes of the keys that workers have confirmed.
func (s *shop) confirmed(ctx context.Context) (map[string]string, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT cache_key, outcome FROM cache_outbox_shadow")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		key, outcome := "", ""
		if err := rows.Scan(&key, &outcome); err != nil {
			return nil, err
		}
		found[key] = outcome
	}
	return found, rows.Err()
}
