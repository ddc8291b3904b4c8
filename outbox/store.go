package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// A Store is the worker's side of the outbox. It keeps two pools: claims, whose sessions are short-lived by
// contract (see session.go), and one for everything else, so that nothing waits for a claim. Safe for
// concurrent use; it connects when first used.
type Store struct {
	cfg    StoreConfig
	claims *sql.DB
	side   *sqlx.DB
	head   head
}

// Open checks cfg and returns a Store. It does not connect.
func Open(cfg StoreConfig) (*Store, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dsn, err := cfg.driver()
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	claims := sql.OpenDB(session{connector, cfg.ClaimTimeout})
	claims.SetMaxOpenConns(2) // the loop's, and one more for the moment in which a dead one is replaced
	claims.SetMaxIdleConns(1)
	claims.SetConnMaxIdleTime(cfg.ClaimTimeout / 2) // never hand out one that the server has just thrown out
	side := sql.OpenDB(connector)
	side.SetMaxOpenConns(4)
	side.SetMaxIdleConns(2)
	side.SetConnMaxIdleTime(5 * time.Second) // below what a Lead leaves as wait_timeout
	return &Store{cfg: cfg, claims: claims, side: sqlx.NewDb(side, "mysql"), head: head{near: nearScan}}, nil
}

// Close closes both pools. A claim that is still open is rolled back by the server.
func (s *Store) Close() error {
	return errors.Join(s.claims.Close(), s.side.Close())
}

// DB is the pool for everything but claims, such as migrations and their check.
func (s *Store) DB() *sql.DB { return s.side.DB }

// ClaimTimeout is the limit that the server puts on a vanished claimer.
func (s *Store) ClaimTimeout() time.Duration { return s.cfg.ClaimTimeout }

// Ping asks the server for a sign of life on the claiming pool, with its session settings.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.claims.PingContext(ctx); err != nil {
		return fmt.Errorf("reach mysql: %w", err)
	}
	return nil
}
