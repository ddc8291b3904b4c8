package verifylocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/migrations"
)

const (
	database  = "locks"
	instances = 5 // of the Redlock
)

// A stage holds the servers: MySQL, and the servers of the backends that run.
type stage struct {
	mysql  *servers.MySQL
	db     *sql.DB
	closes []func() error // first in, last out

	redis   *rig.Node      // the master
	spare   *rig.Node      // to be its replica
	toRedis *servers.Link  // of holders that must follow a failover
	toSpare *servers.Link  // of replication
	jumping *servers.Redis // for the phase that sets clocks

	redlock []*servers.Redis

	ensemble   *servers.ZooKeeper
	toEnsemble []*servers.Link // of the first holder, one for each server

	clocks map[string][]*clock.File // of the servers of a backend, those that can be set
}

func newStage(ctx context.Context, cfg Config, dir string) (s *stage, err error) {
	s = &stage{clocks: map[string][]*clock.File{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	args := append(slices.Clone(rig.MySQLArgs), "--max-connections=1000")
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: args}); err != nil {
		return s, err
	}
	s.closes = append(s.closes, s.mysql.Close)
	played, library := cfg.played(), ""
	if slices.ContainsFunc(played, func(p Phase) bool { return p.jumps }) {
		if library, err = clock.Library(dir); err != nil {
			return s, err
		}
	}
	for _, backend := range cfg.Backends {
		if !slices.ContainsFunc(played, func(p Phase) bool { return len(p.in([]string{backend})) > 0 }) {
			continue
		}
		switch backend {
		case oneRedis:
			err = s.startRedis(ctx, dir, library)
		case redlock:
			err = s.startRedlock(ctx, dir, library)
		case zookeeper:
			err = s.startZooKeeper(ctx, dir, library)
		}
		if err != nil {
			return s, err
		}
	}
	return s, s.prepare(ctx)
}

// startRedis starts a Redis, one that can be its replica and, with a library, one whose clock can
// be set.
func (s *stage) startRedis(ctx context.Context, dir, library string) (err error) {
	for _, node := range []**rig.Node{&s.redis, &s.spare} {
		if *node, err = rig.StartNode(ctx, rig.NodeOptions{}); err != nil {
			return err
		}
		s.closes = append(s.closes, (*node).Close)
	}
	if s.toRedis, err = s.link("redis", s.redis.Server.Addr()); err != nil {
		return err
	}
	if s.toSpare, err = s.link("replication", s.redis.Server.Addr()); err != nil || library == "" {
		return err
	}
	s.jumping, err = s.startInstance(ctx, oneRedis, filepath.Join(dir, "redis"), library)
	return err
}

// startRedlock starts the instances. With a library their clocks can be set.
func (s *stage) startRedlock(ctx context.Context, dir, library string) error {
	for n := range instances {
		r, err := s.startInstance(ctx, redlock, filepath.Join(dir, fmt.Sprint("redlock-", n)), library)
		if err != nil {
			return err
		}
		s.redlock = append(s.redlock, r)
	}
	return nil
}

// startInstance starts a Redis that keeps nothing on disk. With a library its clock can be set by a
// file.
func (s *stage) startInstance(ctx context.Context, backend, file, library string) (*servers.Redis, error) {
	env, err := s.clock(backend, file, library)
	if err != nil {
		return nil, err
	}
	r, err := servers.StartRedis(ctx, servers.RedisOptions{Env: env})
	if err == nil {
		s.closes = append(s.closes, r.Close)
	}
	return r, err
}

// clock makes a file for the clock of a server, and returns what makes the server follow it:
// nothing without a library.
func (s *stage) clock(backend, file, library string) (env []string, err error) {
	if library == "" {
		return nil, nil
	}
	c, err := clock.NewFile(file)
	if err != nil {
		return nil, err
	}
	s.closes, s.clocks[backend] = append(s.closes, c.Close), append(s.clocks[backend], c)
	return []string{library, c.Env()}, nil
}

// startZooKeeper starts three servers. With a library their clocks can be set.
func (s *stage) startZooKeeper(ctx context.Context, dir, library string) error {
	var o servers.ZooKeeperOptions
	for n := range 3 {
		env, err := s.clock(zookeeper, filepath.Join(dir, fmt.Sprint("zookeeper-", n)), library)
		if err != nil {
			return err
		}
		o.Env = append(o.Env, env)
	}
	var err error
	if s.ensemble, err = servers.StartZooKeeper(ctx, o); err != nil {
		return err
	}
	s.closes = append(s.closes, s.ensemble.Close)
	for n, addr := range s.ensemble.Addrs() {
		link, err := s.link(fmt.Sprint("zookeeper-", n), addr)
		if err != nil {
			return err
		}
		s.toEnsemble = append(s.toEnsemble, link)
	}
	return nil
}

func (s *stage) link(name, addr string) (*servers.Link, error) {
	link, err := servers.NewLink(name, addr)
	if err == nil {
		s.closes = append(s.closes, func() error { link.Close(); return nil })
	}
	return link, err
}

// versions returns the versions of the servers.
func (s *stage) versions() string {
	said := []string{s.mysql.Flavor().String() + " " + servers.ShortVersion(s.mysql.Version())}
	switch {
	case s.redis != nil:
		said = append(said, "Redis "+s.redis.Server.Version())
	case s.redlock != nil:
		said = append(said, "Redis "+s.redlock[0].Version())
	}
	if s.ensemble != nil {
		said = append(said, "ZooKeeper "+servers.ShortVersion(s.ensemble.Version()))
	}
	return strings.Join(said, ", ")
}

// tell puts the servers' addresses into what the holders of a phase are told.
func (s *stage) tell(to *spec, ph Phase) error {
	to.MySQL = rig.DSN(s.mysql, database)
	switch {
	case s.redis == nil:
	case ph.jumps:
		to.Redis = s.jumping.Addr()
	case ph.through:
		to.Redis = s.toRedis.Addr()
		if err := s.toRedis.Point(s.redis.Server.Addr()); err != nil {
			return err
		}
	default:
		to.Redis = s.redis.Server.Addr()
	}
	for _, r := range s.redlock {
		to.Redlock = append(to.Redlock, r.Addr())
	}
	if s.ensemble != nil {
		to.ZooKeeper = s.ensemble.Addrs()
	}
	return nil
}

// linked returns the addresses of the links to ZooKeeper.
func (s *stage) linked() (addrs []string) {
	for _, link := range s.toEnsemble {
		addrs = append(addrs, link.Addr())
	}
	return addrs
}

// prepare creates the database, the tables of package lock and the tables of the checker.
func (s *stage) prepare(ctx context.Context) error {
	admin, err := sql.Open("mysql", s.mysql.DSN(""))
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return fmt.Errorf("prepare MySQL: %w", err)
	}
	if s.db, err = sql.Open("mysql", rig.DSN(s.mysql, database)); err != nil {
		return err
	}
	s.closes = append(s.closes, s.db.Close)
	if _, err := migrations.Up(ctx, s.db); err != nil {
		return err
	}
	for _, stmt := range []string{
		"CREATE TABLE counters (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, process INT NOT NULL) ENGINE = InnoDB",
		"CREATE TABLE ledger (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, counter BIGINT NOT NULL, value BIGINT NOT NULL, process INT NOT NULL) ENGINE = InnoDB",
		"CREATE TRIGGER note AFTER UPDATE ON counters FOR EACH ROW INSERT INTO ledger (counter, value, process) VALUES (NEW.id, NEW.n, NEW.process)",
	} {
		if _, err := s.db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("prepare MySQL: %w", err)
		}
	}
	return nil
}

// rows makes the counters of a turn, and returns the last row that the ledger has before it.
func (s *stage) rows(ctx context.Context, turn int) (last int64, err error) {
	first := counter(turn, 0, 0)
	values := make([]string, counter(turn+1, 0, 0)-first)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 0, 0)", first+i)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO counters (id, n, process) VALUES "+strings.Join(values, ",")); err != nil {
		return 0, fmt.Errorf("make counters: %w", err)
	}
	if err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM ledger").Scan(&last); err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	return last, nil
}

func (s *stage) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closes) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
