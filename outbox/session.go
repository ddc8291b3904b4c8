package outbox

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

// session is a driver.Connector whose connections are READ COMMITTED and are thrown out by the server when
// their client vanishes: frozen while idle in a transaction (wait_timeout), while receiving a large claim
// (net_write_timeout), while sending (net_read_timeout), or waiting behind LOCK TABLES (lock_wait_timeout).
// The values are read back, because a proxy may swallow a SET.
type session struct {
	driver.Connector
	limit time.Duration
}

// Contract: session settings, no lock, one row.
const (
	isolationSQL = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
	limitsSQL    = "SET SESSION wait_timeout=%[1]d, net_write_timeout=%[1]d, net_read_timeout=%[1]d, " +
		"innodb_lock_wait_timeout=%[1]d, lock_wait_timeout=%[1]d, autocommit=1, time_zone='+00:00'"
	readBackSQL = "SELECT @@SESSION.wait_timeout, @@SESSION.net_write_timeout, @@SESSION.net_read_timeout, " +
		"@@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout"
)

var limitNames = [...]string{
	"wait_timeout", "net_write_timeout", "net_read_timeout", "innodb_lock_wait_timeout", "lock_wait_timeout",
}

// Connect implements driver.Connector.
func (s session) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, conn); err != nil {
		_ = conn.Close() // err says why; a close error adds nothing
		return nil, fmt.Errorf("prepare claiming session: %w", err)
	}
	return conn, nil
}

func (s session) prepare(ctx context.Context, conn driver.Conn) error {
	exec := conn.(driver.ExecerContext)
	seconds := int64(s.limit / time.Second)
	for _, stmt := range []string{isolationSQL, fmt.Sprintf(limitsSQL, seconds)} {
		if _, err := exec.ExecContext(ctx, stmt, nil); err != nil {
			return err
		}
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, readBackSQL, nil)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	got := make([]driver.Value, len(limitNames))
	if err := rows.Next(got); err != nil {
		return err
	}
	for i, v := range got {
		if text := valueText(v); text != fmt.Sprint(seconds) {
			return fmt.Errorf("the server keeps %s at %s s, asked for %d; connect to it directly or let the proxy pass SET", limitNames[i], text, seconds)
		}
	}
	return nil
}

func valueText(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
