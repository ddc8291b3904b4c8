package store

import (
	"cmp"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A pool says how many sessions a Store opens for one purpose, and what is pinned in them.
type pool struct {
	name    string // the connection attribute unstale_pool
	session session
	open    int // sessions at most
	idle    int // of them kept
	rest    time.Duration
	read    time.Duration // longest wait for an answer; 0: as long as ctx
}

const (
	sideSilence   = 10 * time.Second // of the holder of the sweep lock, who asks every 5 s: see SweepLock.Check
	schemaSilence = time.Hour        // one session of a migration keeps its turn while another alters a table
	lookupGrace   = 500 * time.Millisecond
)

// pools are all pools of a Store. A client waits read for an answer, or as long as ctx.
func (c Config) pools(dsn *mysql.Config) (claims, side, status, lookups, schema pool) {
	patience := c.patience(dsn)
	claims, side, status, lookups, schema = c.claiming(patience), c.beside(patience), c.noting(patience), c.lookingUp(), c.migrating()
	claims.read, side.read, schema.read = c.read(dsn), c.read(dsn), dsn.ReadTimeout
	return claims, side, status, lookups, schema
}

// read is how long a client waits for an answer of the server.
func (c Config) read(dsn *mysql.Config) time.Duration {
	return cmp.Or(dsn.ReadTimeout, c.StatementTimeout)
}

// patience is how long a client waits for a statement.
func (c Config) patience(dsn *mysql.Config) time.Duration {
	return min(c.read(dsn), c.StatementTimeout)
}

// claiming holds rows. Its sessions are short-lived by contract: the server ends them when their client vanishes,
// frozen while idle in a transaction (wait_timeout), while receiving a large claim (net_write_timeout) or while sending
// (net_read_timeout).
func (c Config) claiming(patience time.Duration) pool {
	return pool{
		name: "claims", open: 2, // the loop's, and one more for the moment in which a dead one is replaced
		idle: 1, rest: c.ClaimTimeout / 2, // never hand out one that the server has just ended
		session: session{
			silence: c.ClaimTimeout, lockWait: lockWait(min(patience, c.ClaimTimeout/2-time.Second)), limit: c.ClaimTimeout,
		},
	}
}

// beside is for everything else that a worker or a command asks.
func (c Config) beside(patience time.Duration) pool {
	return pool{
		name: "side", open: 4, idle: 2, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(patience), limit: patience},
	}
}

// noting writes the status record of a worker: see statusWriter.
func (c Config) noting(patience time.Duration) pool {
	return pool{
		name: "status", open: 1, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(patience)},
	}
}

// lookingUp runs the statements of the map, which can neither write nor run on when nobody waits for them.
func (c Config) lookingUp() pool {
	return pool{
		name: "lookups", open: 2, idle: 1, rest: sideSilence / 2,
		session: session{silence: sideSilence, lockWait: lockWait(c.LookupTimeout), limit: c.LookupTimeout, readOnly: true},
	}
}

// migrating changes the schema, however long that takes, but waits for a lock for a second only: behind a statement that
// waits for its table everybody else waits too. It writes at REPEATABLE READ, so that it also works where the binary log is of
// statements; Check then says what is wrong with that.
func (c Config) migrating() pool {
	return pool{
		name: "schema", open: 4, idle: 2, rest: sideSilence / 2,
		session: session{silence: schemaSilence, lockWait: time.Second, snapshot: true},
	}
}

// lockWait is how long a server waits for a lock: less than its client waits for the answer, so that the session
// neither stays behind nor is lost. Servers count whole seconds, and wait for one at least.
func lockWait(patience time.Duration) time.Duration {
	return max((patience - 1).Truncate(time.Second), time.Second)
}

// connect opens a pool. This is the one place that opens sessions.
func (p pool) connect(dsn *mysql.Config, worker string) (*sql.DB, error) {
	dsn = dsn.Clone()
	dsn.ReadTimeout = p.read
	dsn.ConnectionAttributes = "program_name:unstale,unstale_worker:" + strings.ReplaceAll(worker, ",", "_") + ",unstale_pool:" + p.name
	if p.session.readOnly {
		dsn.RejectReadOnly = false // a lookup that writes is refused, and the connection is well
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	db := sql.OpenDB(pinned{connector, p.session})
	db.SetMaxOpenConns(p.open)
	db.SetMaxIdleConns(p.idle)
	db.SetConnMaxIdleTime(p.rest)
	return db, nil
}
