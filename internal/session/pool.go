package session

import (
	"cmp"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A pool defines how many sessions are opened for one purpose, and which settings they pin.
type pool struct {
	name    string // the connection attribute unstale_pool
	session session
	open    int // sessions at most
	idle    int // of them kept
	rest    time.Duration
	read    time.Duration // longest wait for a reply; 0: until ctx ends
}

const (
	// of the holder of the sweep lock, which checks it every 5 s: see SweepLock.Check
	sideSilence = 10 * time.Second
	// One session of a migration waits while another one alters a table.
	schemaSilence = time.Hour
	lookupGrace   = 500 * time.Millisecond
)

// pools returns all pools of Sessions. A client waits read for a reply, or until ctx ends.
func (c Config) pools(dsn *mysql.Config) (claims, side, status, lookups, schema pool) {
	patience := c.patience(dsn)
	claims, side, status, lookups, schema = c.claiming(patience), c.beside(patience), c.noting(patience), c.lookingUp(), c.migrating()
	claims.read, side.read, schema.read = c.read(dsn), c.read(dsn), dsn.ReadTimeout
	return claims, side, status, lookups, schema
}

// read returns how long a client waits for a reply of the server.
func (c Config) read(dsn *mysql.Config) time.Duration {
	return cmp.Or(dsn.ReadTimeout, c.StatementTimeout)
}

// patience returns how long a client waits for a statement.
func (c Config) patience(dsn *mysql.Config) time.Duration {
	return min(c.read(dsn), c.StatementTimeout)
}

// claiming returns the pool for transactions that lock rows. Its sessions are short-lived by
// contract: the server ends them if their client vanishes or freezes while idle in a transaction
// (wait_timeout), while receiving a large claim (net_write_timeout) or while sending
// (net_read_timeout).
func (c Config) claiming(patience time.Duration) pool {
	return pool{
		// one for the loop, and one while a dead session is replaced
		name: "claims", open: 2,
		idle: 1, rest: c.ClaimTimeout / 2, // never return a session that the server has just ended
		session: session{
			silence: c.ClaimTimeout, lockWait: lockWait(min(patience, c.ClaimTimeout/2-time.Second)), limit: c.ClaimTimeout,
		},
	}
}

// beside returns the pool for all other statements of a worker or a command.
func (c Config) beside(patience time.Duration) pool {
	return pool{
		name: "side", open: 4, idle: 2, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(patience), limit: patience},
	}
}

// noting returns the pool that writes the worker status record: see statusWriter.
func (c Config) noting(patience time.Duration) pool {
	return pool{
		name: "status", open: 1, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(patience)},
	}
}

// lookingUp returns the pool for lookups of the map. They cannot write, and the server ends a
// lookup that its client no longer waits for.
func (c Config) lookingUp() pool {
	return pool{
		name: "lookups", open: 2, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(c.LookupTimeout), limit: c.LookupTimeout, readOnly: true},
	}
}

// migrating returns the pool that changes the schema. A change may take any time, but waits for a
// lock for only a second, since all other statements on the table queue behind it. The pool uses
// REPEATABLE READ, so it also works with a statement-based binary log, and Check can report that
// log afterwards.
func (c Config) migrating() pool {
	return pool{
		name: "schema", open: 4, idle: 2, rest: sideSilence / 2,
		session: session{silence: schemaSilence, lockWait: time.Second, snapshot: true},
	}
}

// lockWait returns how long a server waits for a lock. It is less than its client waits for the
// reply, so the session neither lingers nor is lost. Servers count whole seconds, and wait for at
// least one.
func lockWait(patience time.Duration) time.Duration {
	return max((patience - 1).Truncate(time.Second), time.Second)
}

// connect opens a pool. Only this function opens sessions.
func (p pool) connect(dsn *mysql.Config, worker string, prepared []string) (*sql.DB, error) {
	dsn = dsn.Clone()
	dsn.ReadTimeout = p.read
	dsn.ConnectionAttributes = "program_name:unstale,unstale_worker:" + strings.ReplaceAll(worker, ",", "_") + ",unstale_pool:" + p.name
	if p.session.readOnly {
		dsn.RejectReadOnly = false // a lookup that writes fails; the connection stays usable
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	db := sql.OpenDB(pinned{connector, p.session, prepared, dsn.TLS != nil && len(dsn.TLS.Certificates) > 0})
	db.SetMaxOpenConns(p.open)
	db.SetMaxIdleConns(p.idle)
	db.SetConnMaxIdleTime(p.rest)
	return db, nil
}
