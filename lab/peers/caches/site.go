package caches

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// patience is how long anything may take before a run fails.
const patience = time.Minute

// siteMap is the worker's map: a row of the outbox names a key or a tag.
const siteMap = `version: 1
publish: {channel: %s}
entities:
  value: {keys: ["raced:{id}"]}
  group: {tags: ["group:{id}"]}
`

// A site is a private MySQL with a table of values and an outbox, a private Redis, and a worker
// between them.
type site struct {
	mysql   *servers.MySQL
	redis   *servers.Redis
	db      *sql.DB
	admin   *redis.Client
	channel string
	stop    context.CancelFunc
	worker  chan error // what ended it
}

func openSite(ctx context.Context, flavor servers.Kind) (s *site, err error) {
	s = &site{channel: "raced:" + rand.Text()[:8], worker: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.redis, err = servers.StartRedis(ctx, servers.RedisOptions{}); err != nil {
		return s, err
	}
	s.admin = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	if s.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: flavor}); err != nil {
		return s, err
	}
	if err = s.openTables(ctx); err != nil {
		return s, err
	}
	return s, s.startWorker(ctx)
}

func (s *site) openTables(ctx context.Context) (err error) {
	if s.db, err = sql.Open("mysql", s.mysql.DSN("")); err != nil {
		return err
	}
	if _, err = s.db.ExecContext(ctx, "CREATE DATABASE raced CHARACTER SET utf8mb4"); err != nil {
		return err
	}
	if err = s.db.Close(); err != nil {
		return err
	}
	config, err := mysql.ParseDSN(s.mysql.DSN("raced"))
	if err != nil {
		return err
	}
	config.ParseTime, config.Loc = true, time.UTC
	if s.db, err = sql.Open("mysql", config.FormatDSN()); err != nil {
		return err
	}
	if _, err = migrations.Up(ctx, s.db); err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, "CREATE TABLE raced (id VARCHAR(64) PRIMARY KEY, value VARCHAR(16) NOT NULL)")
	return err
}

func (s *site) startWorker(ctx context.Context) error {
	m, err := invalidation.Parse("raced.yaml", fmt.Appendf(nil, siteMap, s.channel), func(string) (string, bool) { return "", false })
	if err != nil {
		return err
	}
	config := worker.Config{Map: m, Name: "raced", Logger: slog.New(slog.DiscardHandler)}
	if config.MySQL, err = mysql.ParseDSN(s.mysql.DSN("raced")); err != nil {
		return err
	}
	if config.Redis, err = redisurl.Parse(s.redis.URL(), false); err != nil {
		return err
	}
	w, err := worker.New(config)
	if err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(ctx)
	go func() { s.worker <- w.Run(ctx) }()
	return nil
}

func (s *site) close() error {
	var errs []error
	if s.stop != nil {
		s.stop()
		errs = append(errs, <-s.worker)
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close())
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

// write commits a value, and with it rows for the worker. It returns when the worker has done what
// they ask for.
func (s *site) write(ctx context.Context, id, value string, rows ...outbox.Invalidation) error {
	token, err := outbox.InTxToken(ctx, s.db, func(tx *sql.Tx, w *outbox.Writes) error {
		const set = "INSERT INTO raced (id, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)"
		if _, err := tx.ExecContext(ctx, set, id, value); err != nil {
			return err
		}
		return w.Enqueue(ctx, tx, rows...)
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	return outbox.Wait(ctx, s.db, token)
}

// read returns the loader of a row.
func (s *site) read(id string) loader {
	return func(ctx context.Context) (value string, err error) {
		err = s.db.QueryRowContext(ctx, "SELECT value FROM raced WHERE id = ?", id).Scan(&value)
		return value, err
	}
}

// restartRedis kills Redis and starts it without data.
func (s *site) restartRedis(ctx context.Context) error {
	if err := s.redis.Kill(); err != nil {
		return err
	}
	return s.redis.Restart(ctx)
}

// until asks again and again, until the answer is yes.
func until(ctx context.Context, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
