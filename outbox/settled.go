package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/sleep"
)

// Errors about the rows of a token, for errors.Is.
var (
	// ErrDead means that a row of the token is a dead letter: the worker could not process it. Its
	// keys may be stale until they expire or an operator retries the row. The error text contains
	// the reason.
	ErrDead = errors.New("a row of the token is a dead letter")
	// ErrReadOnly means that the server does not accept writes. It may be a replica that lags
	// behind the primary.
	ErrReadOnly = dberr.ErrReadOnly
	// ErrTooManyRows means that the write had more rows, or ranges of row IDs, than a token can
	// contain, so their state is unknown.
	ErrTooManyRows = fmt.Errorf("the token has more than %d rows, or too many ranges of IDs; whether they are settled is unknown", MaxTokenRows)
)

// Contract: no lock. One consistent read, so a row that moves from one table to another meanwhile
// is found in one of them: therefore sessions without consistent reads are refused. A proxy of
// several servers adds up their counts, and reads their rows at different times. It finds rows
// by the primary key or by first_id, at most as many as the token has. Of the sweep requests, it
// finds those from the first row of the token on, by first_high. One line.
//
// IDs are numbers that Go has parsed, and are part of the text: a JSON_TABLE for each list takes
// two to ten times as long, and parameters cost two more round trips in a client that does not
// interpolate them.
//
// A repeat does not count, because the row has been applied once. A sweep request does not count
// after its first sweep. The second one, for values that a reader stores meanwhile under an old
// lease, comes only when such leases have ended.
const settledSQL = `SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@SESSION.autocommit,
  /*!80000 @@SESSION.transaction_isolation */ /*M!100100 @@SESSION.tx_isolation */,
  UNIX_TIMESTAMP(), COALESCE((SELECT MIN(id) FROM cache_outbox_source), ''), (SELECT COUNT(*) FROM cache_outbox_source),
  EXISTS (SELECT 1 FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %[1]s),
  EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (first_id) WHERE (%[2]s) AND repeated = 0),
  EXISTS (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (first_high)
    WHERE first_high >= %[4]d AND swept_at IS NULL AND first_low > 0 AND (%[3]s)),
  COALESCE((SELECT reason FROM cache_outbox_dead FORCE INDEX (first_id) WHERE (%[2]s) AND repeated = 0 LIMIT 1), '')`

// settledQuery returns settledSQL for the IDs of a token.
func (t Token) settledQuery() string {
	if len(t.runs) == 0 { // no row has these: a token of too many rows queries only its outbox
		return fmt.Sprintf(settledSQL, "id IN (0)", "first_id IN (0)", "FALSE", 0)
	}
	var ids, firsts, spans []string
	for _, r := range t.runs {
		ids = append(ids, r.condition("id"))
		firsts = append(firsts, r.condition("first_id"))
		spans = append(spans, fmt.Sprintf("first_high >= %d AND first_low <= %d", r.first, r.last()))
	}
	const or = " OR "
	return fmt.Sprintf(settledSQL, strings.Join(ids, or), strings.Join(firsts, or), strings.Join(spans, or), t.runs[0].first)
}

// condition returns an SQL condition that a column is one of the IDs of the run.
func (r run) condition(column string) string {
	if r.step == 1 || r.count == 1 {
		return fmt.Sprintf("%s BETWEEN %d AND %d", column, r.first, r.last())
	}
	list := make([]string, r.count)
	for i := range r.count {
		list[i] = strconv.FormatUint(r.first+i*r.step, 10)
	}
	return column + " IN (" + strings.Join(list, ",") + ")"
}

// Settled reports whether the worker has settled all rows of a token, which means that their keys
// are gone from Redis. It runs one query on db, which must be the primary.
//
// In-process caches of other processes may keep an old value until the message of the worker
// arrives.
//
// A row that invalidates a pattern or an index set is settled when the worker has deleted the
// matching keys once. A reader that began earlier can still store an old value under another
// matching key. The worker deletes such values when it scans again, 10 s later by default (the
// field lease of the map).
//
// A row whose dead letter was discarded counts as settled. An operator can discard a letter only
// TokenLifetime after its death.
//
// If the state is unknown, the error wraps ErrDead, ErrReadOnly, ErrOtherOutbox, ErrTooManyRows or
// the error of the database. The state is also unknown if db has several shards, with an outbox in
// each. Settled is safe for concurrent use.
func Settled(ctx context.Context, db Pool, token Token) (bool, error) {
	v, err := judge(ctx, db, token)
	if err == nil {
		err = v.err
	}
	return v.settled, dberr.Wrap(err, "ask for invalidations")
}

// A verdict is the known state of a token.
type verdict struct {
	settled bool
	age     time.Duration
	err     error // why it will not be settled
}

// judge queries the state of a token on a server, which must be a primary. An error means that the
// state is unknown.
func judge(ctx context.Context, db Pool, token Token) (v verdict, err error) {
	if token.IsZero() {
		return verdict{settled: true}, nil
	}
	var readOnly, innodbReadOnly, isolation, source, dead string
	var autocommit, hot, delayed, sweeps bool
	var now int64 // seconds since 1970
	var outboxes int
	err = db.QueryRowContext(ctx, token.settledQuery()).
		Scan(&readOnly, &innodbReadOnly, &autocommit, &isolation, &now, &source, &outboxes, &hot, &delayed, &sweeps, &dead)
	switch {
	case err != nil:
		return v, err
	case !dberr.IsOff(readOnly) || !dberr.IsOff(innodbReadOnly):
		return v, ErrReadOnly
	case outboxes > 1:
		return v, severalOutboxes(outboxes)
	case !autocommit:
		return v, errors.New("the session has autocommit off, so it reads an old snapshot; leave it on")
	case strings.HasPrefix(isolation, "READ-UNCOMMITTED"):
		return v, errors.New("the session reads what is not committed; use READ COMMITTED or REPEATABLE READ")
	}
	v.age = time.Duration(max(now-token.made, 0)) * time.Second
	switch {
	case source != token.source:
		v.err = ErrOtherOutbox
	case token.many:
		v.err = ErrTooManyRows
	case dead != "":
		v.err = fmt.Errorf("%w: %s", ErrDead, dead)
	default:
		v.settled = !hot && !delayed && !sweeps
	}
	return v, nil
}

// The pauses between two queries of Wait.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// Wait waits until the worker has settled all rows of a token. See [Settled], which it calls
// several times per second. db must be the primary.
//
// Give ctx a deadline: if no worker runs, Wait returns only when ctx ends. The error is an error of
// Settled, or wraps the error of ctx.
func Wait(ctx context.Context, db Pool, token Token) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		done, err := Settled(ctx, db, token)
		if err == nil && !done {
			err = sleep.For(ctx, pause/2+rand.N(pause))
		}
		if err != nil || done {
			return dberr.Wrap(err, "wait for invalidations")
		}
	}
}

// A Check lets a reader see its own writes, which are the writes of a token: see Policy.After in
// package cache. Create one Check per request, and use it for all reads of the request. It is safe
// for concurrent use.
type Check struct {
	db    Pool
	token Token

	mu    sync.Mutex
	final *verdict  // no more queries are made
	until time.Time // when the token ends, where final is set
}

// NewCheck returns a Check that queries db, which must be the primary. For a zero token, it does
// not query.
func NewCheck(db Pool, token Token) *Check { return &Check{db: db, token: token} }

// Settled is like the function [Settled]. It also returns how much of TokenLifetime is left, by the
// clock of the database, or 0 for a zero token. Once the rows are settled or dead, it does not
// query again.
func (c *Check) Settled(ctx context.Context) (settled bool, left time.Duration, err error) {
	if c.token.IsZero() {
		return true, 0, nil
	}
	v, until := c.known()
	if v == nil {
		asked := time.Now()
		told, err := judge(ctx, c.db, c.token)
		if err != nil {
			return false, TokenLifetime, dberr.Wrap(err, "ask for invalidations")
		}
		v, until = &told, asked.Add(TokenLifetime-told.age)
		c.learn(v, until)
	}
	if left = time.Until(until); left <= 0 {
		return true, 0, nil
	}
	return v.settled, left, dberr.Wrap(v.err, "ask for invalidations")
}

// known returns the final state, or nil if it must be queried.
func (c *Check) known() (*verdict, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final, c.until
}

// learn keeps a verdict that is final.
func (c *Check) learn(v *verdict, until time.Time) {
	if v.settled || v.err != nil || v.age > TokenLifetime {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.final, c.until = v, until
	}
}
