package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// A Lead is a role that one process holds at a time, such as the sweeper's. It is a MySQL user lock, so the
// server frees it the moment the holder's connection is gone, and after a minute if the holder is frozen:
// see Held. Not safe for concurrent use.
type Lead struct {
	conn *sql.Conn
	role string
}

// Contract for all: no row lock; never waits. The name carries the schema, because user locks are
// global to the server, and is hashed, because their names end at 64 characters.
const (
	takeLeadSQL  = "SELECT GET_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)), 0)"
	holdLeadSQL  = "SELECT IS_USED_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32))) = CONNECTION_ID()"
	leadLimitSQL = "SET SESSION wait_timeout = 60"
	dropLeadSQL  = "SELECT RELEASE_LOCK(CONCAT('unstale.', ?, '.', LEFT(SHA2(DATABASE(), 256), 32)))"
)

// TryLead takes the role, or returns nil if another process has it.
func (s *Store) TryLead(ctx context.Context, role string) (*Lead, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	conn, err := s.side.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("take the lead of %s: %w", role, err)
	}
	if _, err := conn.ExecContext(ctx, leadLimitSQL); err != nil {
		return nil, errors.Join(fmt.Errorf("take the lead of %s: %w", role, err), conn.Close())
	}
	var got sql.NullBool
	if err := conn.QueryRowContext(ctx, takeLeadSQL, role).Scan(&got); err != nil {
		return nil, errors.Join(fmt.Errorf("take the lead of %s: %w", role, err), conn.Close())
	}
	if !got.Bool {
		return nil, conn.Close()
	}
	return &Lead{conn: conn, role: role}, nil
}

// Held says whether the role is still ours. Ask at least every 30 s: the question keeps the server from
// taking the holder for frozen.
func (l *Lead) Held(ctx context.Context) bool {
	var mine sql.NullBool
	err := l.conn.QueryRowContext(ctx, holdLeadSQL, l.role).Scan(&mine)
	return err == nil && mine.Bool
}

// Drop gives the role up. Should the server not answer, the connection is closed, which frees it as well.
func (l *Lead) Drop(ctx context.Context) error {
	var freed sql.NullBool
	err := l.conn.QueryRowContext(ctx, dropLeadSQL, l.role).Scan(&freed)
	if err != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn }) // out of the pool, so that the lock cannot linger
		_ = l.conn.Close()
		return fmt.Errorf("drop the lead of %s: %w", l.role, err)
	}
	return l.conn.Close()
}
