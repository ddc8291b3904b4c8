package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
)

// A Store is the worker's side of the outbox. It keeps pools of sessions (see pool.go), so that nothing waits for a
// claim and no lookup can harm one. Safe for concurrent use; it connects when first used.
type Store struct {
	cfg     Config
	claims  *sql.DB
	side    *sqlx.DB
	lookups *sql.DB
	schema  *sql.DB
	status  *statusWriter
	planner planner
	blocks  blockLimits // of summaries
	clock   databaseClock
	commits commitWatch

	patience  time.Duration // the client's, with one statement
	ungrouped sync.Map      // the lookups that ONLY_FULL_GROUP_BY refuses: query to error
}

// Open checks cfg and returns a Store. It does not connect.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dsn, err := cfg.driver()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, planner: planner{quick: quickScan}, blocks: usualBlocks, patience: cfg.patience(dsn)}
	claims, side, status, lookups, schema := cfg.pools(dsn)
	var sideDB, statusDB *sql.DB
	for _, p := range []struct {
		pool pool
		db   **sql.DB
	}{{claims, &s.claims}, {side, &sideDB}, {status, &statusDB}, {lookups, &s.lookups}, {schema, &s.schema}} {
		if *p.db, err = p.pool.connect(dsn, cfg.Worker); err != nil {
			return nil, err
		}
	}
	s.side = sqlx.NewDb(sideDB, "mysql")
	s.status = newStatusWriter(statusDB, &s.commits, s.commitLimit()+noteGrace)
	return s, nil
}

// Close closes all pools. A claim that is still open is rolled back by the server.
func (s *Store) Close() error {
	return errors.Join(s.status.close(), s.claims.Close(), s.side.Close(), s.lookups.Close(), s.schema.Close())
}

// DB is the pool for statements outside claims, such as the check of the schema. Its statements are short.
func (s *Store) DB() *sql.DB { return s.side.DB }

// SchemaDB is the pool for migrations: its statements may take as long as their ctx allows, but wait for a lock for a
// second only.
func (s *Store) SchemaDB() *sql.DB { return s.schema }

// ClaimTimeout is the limit that the server puts on a vanished claimer.
func (s *Store) ClaimTimeout() time.Duration { return s.cfg.ClaimTimeout }

// Ping checks that the server answers on the claiming pool, with its session settings.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.claims.PingContext(ctx); err != nil {
		return fmt.Errorf("reach mysql: %w", err)
	}
	return nil
}
