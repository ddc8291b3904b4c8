package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What asking for a token's rows ends with, for errors.Is.
var (
	// ErrDead is a row of the token among the dead letters: its keys were not unlinked, and may be stale until they expire
	// or an operator retries the row. The error's text has the reason, of one where several are dead.
	ErrDead = errors.New("a row of the token is a dead letter")
	// ErrReadOnly is a server that takes no writes. It may be a replica, which is behind.
	ErrReadOnly = errors.New("the server is read-only: it may be a replica, which is behind; ask the primary")
	// ErrTooManyRows is a token of more rows than it can name: whether they are settled cannot be told.
	ErrTooManyRows = fmt.Errorf("the token is of more than %d rows, or of writes in too many places; nobody can tell whether they are settled", MaxTokenRows)
)

// Contract: no lock. One consistent read, so that a row which moves from one table to another meanwhile is seen in one of
// them: hence the refusal of sessions where it would not be. Rows by the primary key or by first_id, no more than the token
// has; of the requests of sweeps those from the token's first row on, by first_high. One line.
//
// Ids are numbers that Go has parsed, and stand in the text: a JSON_TABLE for each list takes twice to ten times as long,
// and parameters cost a client that does not interpolate them two round trips more.
//
// A repeat is no reason to wait: the row has been applied once. A request for a sweep is none after its first sweep: the
// second one, for what a reader stores meanwhile under an old lease, comes only when such leases have run out.
const settledSQL = `SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@SESSION.autocommit,
  /*!80000 @@SESSION.transaction_isolation */ /*M!100100 @@SESSION.tx_isolation */,
  UNIX_TIMESTAMP(), COALESCE((SELECT id FROM cache_outbox_source LIMIT 1), ''),
  EXISTS (SELECT 1 FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %[1]s),
  EXISTS (SELECT 1 FROM cache_outbox_delayed FORCE INDEX (first_id) WHERE (%[2]s) AND repeated = 0),
  EXISTS (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (first_high)
    WHERE first_high >= %[4]d AND swept_at IS NULL AND first_low > 0 AND (%[3]s)),
  COALESCE((SELECT reason FROM cache_outbox_dead FORCE INDEX (first_id) WHERE (%[2]s) AND repeated = 0 LIMIT 1), '')`

// settledQuery is settledSQL for a token's ids.
func (t Token) settledQuery() string {
	if len(t.runs) == 0 { // nobody has these: a token of too many rows asks for its outbox alone
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

// condition is SQL by which a column is one of the run's ids.
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

// An answer is what the server says about a token.
type answer struct {
	now    int64 // seconds since 1970
	source string
	waits  bool
	dead   string // the reason of one
}

// ask asks the server, which must be a primary.
func ask(ctx context.Context, db Pool, t Token) (a answer, err error) {
	var readOnly, innodbReadOnly, isolation string
	var autocommit, hot, delayed, sweeps bool
	err = db.QueryRowContext(ctx, t.settledQuery()).
		Scan(&readOnly, &innodbReadOnly, &autocommit, &isolation, &a.now, &a.source, &hot, &delayed, &sweeps, &a.dead)
	switch {
	case err != nil:
		return a, err
	case !isOff(readOnly) || !isOff(innodbReadOnly):
		return a, ErrReadOnly
	case !autocommit:
		return a, errors.New("the session has autocommit off, so that it reads an old snapshot; leave it on")
	case strings.HasPrefix(isolation, "READ-UNCOMMITTED"):
		return a, errors.New("the session reads what is not committed; use READ COMMITTED or REPEATABLE READ")
	}
	a.waits = hot || delayed || sweeps
	return a, nil
}

// isOff tells off from what newer servers have beside on.
func isOff(variable string) bool { return variable == "0" || strings.EqualFold(variable, "OFF") }

// Settled reports whether the keys of all rows of a token are gone from Redis. It asks db, which must be the primary, in one
// statement, and changes nothing. Rows of patterns and index sets are settled after the first sweep: until the second one, a
// map's lease later, a reader that began before may store an old value once more under a name that only the pattern finds.
//
// Settled is not delivered: other processes may still have values in their memory until the worker's message arrives.
//
// The error is ErrDead, ErrReadOnly, ErrOtherOutbox, ErrTooManyRows or that of the database, wrapped; nothing is known to be
// settled then. Safe for concurrent use.
func Settled(ctx context.Context, db Pool, token Token) (bool, error) {
	v, err := judge(ctx, db, token)
	if err == nil {
		err = v.err
	}
	return v.settled, wrap("ask for invalidations", err)
}

// A verdict is what is known of a token.
type verdict struct {
	settled bool
	age     time.Duration
	err     error // why it will not be settled
}

// judge asks about a token. The error is that nothing is known.
func judge(ctx context.Context, db Pool, token Token) (v verdict, err error) {
	if token.IsZero() {
		return verdict{settled: true}, nil
	}
	a, err := ask(ctx, db, token)
	if err != nil {
		return v, err
	}
	v.age = time.Duration(max(a.now-token.made, 0)) * time.Second
	switch {
	case a.source != token.source:
		v.err = ErrOtherOutbox
	case token.many:
		v.err = ErrTooManyRows
	case a.dead != "":
		v.err = fmt.Errorf("%w: %s", ErrDead, a.dead)
	default:
		v.settled = !a.waits
	}
	return v, nil
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}
