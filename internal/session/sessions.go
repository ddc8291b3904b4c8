package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// Sessions are the worker's connections to MySQL, in separate pools (see pool.go): no other
// statement waits for a claim, and no lookup can affect one. Safe for concurrent use. They connect
// on first use.
type Sessions struct {
	Config Config
	Claims *sql.DB  // for transactions that hold rows, and for polls
	Side   *sqlx.DB // for everything else

	lookups *sql.DB
	schema  *sql.DB
	status  *statusWriter
	commits commitWatch

	patience time.Duration // how long the client waits for one statement
}

// Open checks cfg and returns Sessions. It does not connect. A session prepares the statements in
// prepared when it first runs them.
func Open(cfg Config, prepared ...string) (*Sessions, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dsn, err := cfg.driver()
	if err != nil {
		return nil, err
	}
	s := &Sessions{Config: cfg, patience: cfg.patience(dsn)}
	claims, side, status, lookups, schema := cfg.pools(dsn)
	var sideDB, statusDB *sql.DB
	for _, p := range []struct {
		pool pool
		db   **sql.DB
	}{{claims, &s.Claims}, {side, &sideDB}, {status, &statusDB}, {lookups, &s.lookups}, {schema, &s.schema}} {
		if *p.db, err = p.pool.connect(dsn, cfg.Worker, prepared); err != nil {
			return nil, err
		}
	}
	s.Side = sqlx.NewDb(sideDB, "mysql")
	s.status = newStatusWriter(statusDB, &s.commits, s.commitLimit()+noteGrace)
	return s, nil
}

// Close closes all pools. The server rolls back a claim that is still open.
func (s *Sessions) Close() error {
	return errors.Join(s.status.close(), s.Claims.Close(), s.Side.Close(), s.lookups.Close(), s.schema.Close())
}

// DB returns the pool for short statements outside claims, such as the check of the schema.
func (s *Sessions) DB() *sql.DB { return s.Side.DB }

// SchemaDB returns the pool for migrations. Its statements may take as long as their ctx allows,
// but wait for a lock for only a second.
func (s *Sessions) SchemaDB() *sql.DB { return s.schema }

// ClaimTimeout returns how long the server waits before it disconnects a claimer that vanished.
func (s *Sessions) ClaimTimeout() time.Duration { return s.Config.ClaimTimeout }

// Ping checks that the server responds on the claiming pool, with its session settings.
func (s *Sessions) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	if err := s.Claims.PingContext(ctx); err != nil {
		return fmt.Errorf("reach mysql: %w", err)
	}
	return nil
}
