package verifylocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/fleet"
	"github.com/unstale/unstale/internal/proxy"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/migrations"
)

const database = "locks"

// A stage holds the servers.
type stage struct {
	mysql   *servers.MySQL
	db      *sql.DB
	redis   *fleet.Node // the master
	spare   *fleet.Node // to be its replica
	jumping *servers.Redis
	clock   *clock.File // its
	toRedis *proxy.Link // of holders that must follow a failover
	toSpare *proxy.Link // of replication
}

func newStage(ctx context.Context, cfg Config, dir string) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: fleet.MySQLArgs}); err != nil {
		return s, err
	}
	if s.redis, err = fleet.StartNode(ctx); err != nil {
		return s, err
	}
	if s.spare, err = fleet.StartNode(ctx); err != nil {
		return s, err
	}
	if slices.ContainsFunc(phases, func(p Phase) bool { return p.jumps && slices.Contains(cfg.Phases, p.Name) }) {
		if err := s.startJumping(ctx, dir); err != nil {
			return s, err
		}
	}
	for name, link := range map[string]**proxy.Link{"redis": &s.toRedis, "replication": &s.toSpare} {
		if *link, err = proxy.New(name, s.redis.Addr()); err != nil {
			return s, err
		}
	}
	return s, s.prepare(ctx)
}

// startJumping starts a Redis whose clock can be set.
func (s *stage) startJumping(ctx context.Context, dir string) error {
	library, err := clock.Library(dir)
	if err != nil {
		return err
	}
	if s.clock, err = clock.NewFile(filepath.Join(dir, "redis")); err != nil {
		return err
	}
	s.jumping, err = servers.StartRedis(ctx, servers.RedisOptions{Env: []string{library, s.clock.Env()}})
	return err
}

// prepare makes the database, the tables of package lock and those of the meter.
func (s *stage) prepare(ctx context.Context) error {
	admin, err := sql.Open("mysql", s.mysql.DSN(""))
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return fmt.Errorf("prepare MySQL: %w", err)
	}
	if s.db, err = sql.Open("mysql", s.dsn()); err != nil {
		return err
	}
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

// dsn is for holders and the judge.
func (s *stage) dsn() string {
	cfg, err := mysql.ParseDSN(s.mysql.DSN(database))
	if err != nil {
		panic(err) // it was made by FormatDSN
	}
	cfg.InterpolateParams = true // one round trip for a statement
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
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
	for _, link := range []*proxy.Link{s.toRedis, s.toSpare} {
		if link != nil {
			link.Close()
		}
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	for _, node := range []*fleet.Node{s.redis, s.spare} {
		if node != nil {
			errs = append(errs, node.Close())
		}
	}
	if s.jumping != nil {
		errs = append(errs, s.jumping.Close())
	}
	if s.clock != nil {
		errs = append(errs, s.clock.Close())
	}
	if s.mysql != nil {
		errs = append(errs, s.mysql.Close())
	}
	return errors.Join(errs...)
}
