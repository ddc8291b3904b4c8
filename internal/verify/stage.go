package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/fleet"
	"github.com/unstale/unstale/internal/proxy"
	"github.com/unstale/unstale/internal/servers"
)

const (
	database     = "verify"
	wakeChannel  = "cache:outbox:wake"
	claimTimeout = 3 * time.Second // of the workers: what a frozen one costs
	batchRows    = 500
)

// Durability is left to the operating system, which survives a killed process: the meter kills no machine.
var mysqlArgs = []string{"--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-buffer-pool-size=256M"}

// A stage holds the servers and the workers.
type stage struct {
	mysql   *servers.MySQL
	db      *sql.DB
	redis   *servers.Redis
	client  *redis.Client
	toRedis *proxy.Link // of the readers' subscriptions
	fleet   *fleet.Fleet
	sources []string
}

func newStage(ctx context.Context, cfg Config, dir string) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: cfg.Flavor, Args: mysqlArgs}); err != nil {
		return s, err
	}
	if s.redis, err = servers.StartRedis(ctx, servers.RedisOptions{}); err != nil {
		return s, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	if s.toRedis, err = proxy.New("subscriptions", s.redis.Addr()); err != nil {
		return s, err
	}
	if err := s.prepare(ctx); err != nil {
		return s, err
	}
	s.fleet, err = fleet.New(cfg.Binary, dir, workerMap, []string{
		"UNSTALE_CLAIM_TIMEOUT=" + claimTimeout.String(), "UNSTALE_JOURNAL_RETENTION=10m", "UNSTALE_RETRY_DELAY=100ms",
		"MYSQL_DSN=unstale:verify@tcp(" + s.mysql.Addr() + ")/" + database, "REDIS_URL=" + s.redis.URL(),
	})
	if err != nil {
		return s, err
	}
	if _, err := s.fleet.Call(ctx, "migrate", "up"); err != nil {
		return s, err
	}
	var source string
	if err := s.db.QueryRowContext(ctx, "SELECT id FROM cache_outbox_source").Scan(&source); err != nil {
		return s, fmt.Errorf("read the outbox's id: %w", err)
	}
	s.sources = []string{source}
	for range cfg.Workers {
		if err := s.fleet.Start(batchRows); err != nil {
			return s, err
		}
	}
	return s, nil
}

// prepare makes the database, the table of versions and the workers' account.
func (s *stage) prepare(ctx context.Context) error {
	admin, err := sql.Open("mysql", s.mysql.DSN(""))
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, stmt := range []string{
		"CREATE DATABASE " + database,
		"CREATE TABLE " + database + ".verify_rows (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, version BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB",
		"CREATE USER 'unstale'@'%' IDENTIFIED BY 'verify'",
		"GRANT ALL ON " + database + ".* TO 'unstale'@'%'",
	} {
		if _, err := admin.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("prepare mysql: %w", err)
		}
	}
	s.db, err = sql.Open("mysql", s.dsn())
	if err != nil {
		return err
	}
	s.db.SetMaxIdleConns(32)
	return nil
}

// dsn is for writers and readers.
func (s *stage) dsn() string {
	cfg, err := mysql.ParseDSN(s.mysql.DSN(database))
	if err != nil {
		panic(err) // it was made by FormatDSN
	}
	cfg.InterpolateParams = true // one round trip for a statement
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN()
}

// rows makes the rows of a turn, at version 0.
func (s *stage) rows(ctx context.Context, first, keys int) error {
	values := make([]string, keys)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 0)", first+i)
	}
	if _, err := s.db.ExecContext(ctx, "INSERT INTO verify_rows (id, version) VALUES "+strings.Join(values, ",")); err != nil {
		return fmt.Errorf("make rows: %w", err)
	}
	return nil
}

// save makes Redis write a snapshot, and forget removes it, so that Redis starts empty.
func (s *stage) save(ctx context.Context) error { return s.client.Save(ctx).Err() }

func (s *stage) forget() error {
	err := os.Remove(filepath.Join(filepath.Dir(s.redis.Socket()), "dump.rdb"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (s *stage) close() error {
	var errs []error
	if s.fleet != nil {
		s.fleet.KillAll()
	}
	if s.toRedis != nil {
		s.toRedis.Close()
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.mysql != nil {
		errs = append(errs, s.mysql.Close())
	}
	return errors.Join(errs...)
}
