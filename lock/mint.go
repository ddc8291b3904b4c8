package lock

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/lock/internal/locking"
)

const (
	mintSessions = 8
	mintGrace    = 2 * time.Second // beyond MintWait, for the way there and back
	mintTries    = 3               // after a deadlock
	mintQuick    = time.Second     // the least that MySQL can wait
	mintIdle     = 60 * time.Second
)

// Contract: one row by primary key, in a separate transaction; waits for the guarded transaction
// that has the row locked. Repeating it is harmless. The hexadecimal text keeps binary bytes out of
// the list of processes, which MySQL 9 would refuse to show.
const mintSQL = `INSERT INTO cache_outbox_locks (name, token, minted_at) VALUES (UNHEX(?), UNHEX(?), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE token = UNHEX(?), minted_at = UTC_TIMESTAMP(6)`

// A mint writes fencing tokens to MySQL, in sessions that commit each statement and wait for a row
// at most MintWait. They wait for mintQuick first, and then in other sessions. So holders that are
// frozen in their transactions delay only the callers that wait for them.
type mint struct {
	db      *sql.DB
	patient *sql.DB // nil if MintWait is no longer than mintQuick
	*reach
	wait time.Duration
	took *durations

	mu      sync.Mutex
	checked bool // the server is the only one that takes writes, as far as it tells
}

func newMint(config Config, took *durations) (m *mint, err error) {
	m = &mint{wait: config.MintWait, took: took}
	if m.db, err = openMint(config, mintQuick); err == nil && config.MintWait > mintQuick {
		m.patient, err = openMint(config, config.MintWait-mintQuick)
	}
	if err == nil {
		m.reach, err = openReach(config)
	}
	return m, err
}

// openMint returns a pool of sessions that wait for a row lock for so long. It sends nothing.
func openMint(config Config, wait time.Duration) (*sql.DB, error) {
	dsn := config.MySQL.Clone()
	if dsn.Params == nil {
		dsn.Params = map[string]string{}
	}
	seconds := fmt.Sprint(wholeSeconds(wait))
	maps.Copy(dsn.Params, map[string]string{
		"innodb_lock_wait_timeout": seconds, "lock_wait_timeout": seconds, "autocommit": "1", "completion_type": "0",
		"wait_timeout": fmt.Sprint(wholeSeconds(mintIdle)),
	})
	dsn.InterpolateParams = true // one round trip
	dsn.MultiStatements = false
	dsn.RejectReadOnly = true // after a failover the old primary is left
	dsn.ReadTimeout = config.MintWait + mintGrace
	dsn.Timeout = cmp.Or(dsn.Timeout, config.MintWait)
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("MySQL: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(mintSessions)
	db.SetMaxIdleConns(mintSessions)
	db.SetConnMaxIdleTime(mintIdle / 2)
	return db, nil
}

func (m *mint) close() error {
	if m.patient == nil {
		return errors.Join(m.db.Close(), m.reach.close())
	}
	return errors.Join(m.db.Close(), m.patient.Close(), m.reach.close())
}

// storeToken stores the token of a claim as the current one of its name. It returns when the server
// has answered, even after the end of the caller's context: a caller that gives up must not leave a
// statement that writes the token later. If the server does not answer other statements either,
// storeToken returns: the lock must not wait for an unreachable server.
func (m *mint) storeToken(caller context.Context, c locking.Claim) (err error) {
	defer func(began time.Duration) { m.took.observe(locking.Now() - began) }(locking.Now())
	limited, cancel := context.WithTimeout(context.Background(), m.wait+mintGrace)
	defer cancel()
	ctx, give := context.WithCancelCause(limited)
	defer give(nil)
	defer m.watch(ctx, caller, give)()
	defer func() { m.answered(err) }()
	err = m.refuseManyWriters(ctx)
	db, held := m.db, false
	for try := 1; err == nil; try++ {
		text := c.Token.String()
		_, err = db.ExecContext(ctx, mintSQL, hex.EncodeToString([]byte(c.Name)), text, text)
		if err == nil {
			return nil
		}
		switch n := mysqlerr.Number(err); {
		case n == mysqlerr.Deadlock && try < mintTries:
			err = nil
		case n == mysqlerr.LockTimeout && !held && m.patient != nil:
			db, held, err = m.patient, true, nil
		}
	}
	switch n := mysqlerr.Number(err); {
	case errors.Is(context.Cause(ctx), errUnreachable):
		return fmt.Errorf("mint: %w", context.Cause(ctx))
	case errors.Is(err, driver.ErrBadConn):
		return fmt.Errorf("mint: the server is gone, or takes no writes: %w", err)
	case n == mysqlerr.LockTimeout, held && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("mint: %w, of an earlier holder that is slow or frozen; the server ends it after that session's wait_timeout: %w", ErrGuardOpen, err)
	case n == mysqlerr.NoTable:
		return fmt.Errorf("mint: %w; run 'unstale migrate up'", err)
	case n == mysqlerr.NoneSelected:
		return fmt.Errorf("mint: %w; name in lock.Config.MySQL (DBName) the database that sections change", err)
	case n == mysqlerr.NoRight, n == mysqlerr.NoColumnRight:
		return fmt.Errorf("mint: %w; GRANT SELECT, INSERT, UPDATE ON cache_outbox_locks to the account", err)
	}
	return fmt.Errorf("mint: %w", err)
}

var errWriters = errors.New("where several servers take writes the lock on a row is one server's, and guards nothing")

// refuseManyWriters refuses, once, a server if other servers accept writes too: a row lock holds
// only on one of them. It refuses VTGate.
func (m *mint) refuseManyWriters(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checked {
		return nil
	}
	if err := dberr.RefuseVTGate(ctx, m.db); err != nil {
		return err
	}
	writers, err := dberr.OtherWriters(ctx, m.db)
	if err == nil && writers != "" {
		err = fmt.Errorf("%s: %w", writers, errWriters)
	}
	m.checked = err == nil
	return err
}
