package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/outbox"
)

// A Queue claims rows and settles them. It keeps track of where claims begin, so a process needs
// only one. Safe for concurrent use.
type Queue struct {
	db      *session.Sessions
	journal *Journal
	minutes *Minutes
	planner planner
	clock   databaseClock
}

// NewQueue returns the Queue of an outbox, which counts its batches. Its sessions should prepare
// [Prepared].
func NewQueue(db *session.Sessions, counts *Minutes) *Queue {
	return &Queue{db: db, journal: NewJournal(db), minutes: counts, planner: planner{quick: quickScan}}
}

// A ClaimedRow is one claimed row of cache_outbox or cache_outbox_delayed.
type ClaimedRow struct {
	ID          uint64    // in the table that it was claimed from
	FirstID     uint64    // in cache_outbox, where it began; 0 if it never was in it
	Entity      string    // as written
	EntityID    string    // as written
	Params      []byte    // JSON text as written; nil if there are none or they are too large
	ParamsBytes int       // their size in the table
	Trace       string    // as written
	CreatedAt   time.Time // UTC, the database's clock
	Attempts    int       // its own failures so far
	Repeated    bool      // the map asked for this repeat
	LastError   string    // of the last failure; empty if there was none
}

// Unread reports whether the parameters were not fetched because they are larger than
// ClaimLimits.ParamsBytes or ClaimLimits.Large.
func (r *ClaimedRow) Unread() bool { return r.Params == nil && r.ParamsBytes > 0 }

// TruncatedField returns the name of the field that fills its column, or an empty string. Columns
// are one character wider than the limit, so a full column means that a non-strict sql_mode has cut
// the value.
func (r *ClaimedRow) TruncatedField() string {
	switch {
	case utf8.RuneCountInString(r.Entity) > outbox.MaxEntity:
		return "entity"
	case utf8.RuneCountInString(r.EntityID) > outbox.MaxID:
		return "entity_id"
	case utf8.RuneCountInString(r.Trace) > outbox.MaxTrace:
		return "trace"
	}
	return ""
}

// ClaimLimits bound one claim. Rows, Bytes and ParamsBytes are required.
type ClaimLimits struct {
	Rows        int // at most this many rows
	Bytes       int // at most this many bytes of parameters, but at least one row
	ParamsBytes int // larger parameters are not fetched: see ClaimedRow.Unread

	// Pass lists rows, by their IDs in the table, that the claim skips. At most MaxNamed.
	Pass []uint64
	// Only, if set, lists the rows that the claim is limited to; missing rows are ignored. At most
	// MaxNamed. Only and Pass exclude each other.
	Only []uint64
	// Large, if set, leaves parameters with more bytes unfetched, even if they are within
	// ParamsBytes: see ClaimedRow.Unread.
	Large int
}

// MaxNamed is how many rows ClaimLimits.Pass and ClaimLimits.Only may list.
const MaxNamed = 1000

// A Claim is one open transaction that holds rows. It must end with Settle or Release. Not safe for
// concurrent use.
type Claim struct {
	Rows []ClaimedRow
	// Left are the IDs of rows that the byte limit left out.
	Left []uint64
	// Unseen is a time before which none of Rows was visible, unless another worker held it. It is
	// the start of the last poll or claim of this Queue that left no committed row in cache_outbox,
	// except those that others held. Zero if there was none, or if Rows are delayed rows.
	Unseen time.Time
	// Journaled are the rows of the journal that Settle has written.
	Journaled []Mark
	queue     *Queue
	tx        *sql.Tx
	table     *table
	named     bool // it lists rows by their IDs
	// start of the claim if it left out no visible row except those in Pass; otherwise zero
	sawAll time.Time
	all    []ClaimedRow // of this claim and of More, ascending by ID; nil without More
	held   []ClaimedRow // of earlier claims of the transaction, ascending by ID: not claimed again
	full   bool         // it read as many rows as the limit allows
}

// IsDelayed reports whether the rows are from cache_outbox_delayed.
func (c *Claim) IsDelayed() bool { return c.table != hot }

// Claim claims the oldest rows that no other session holds. It returns nil if there are none. Its
// ctx must outlive the claim: when ctx ends, the rows are released.
func (q *Queue) Claim(ctx context.Context, limits ClaimLimits) (*Claim, error) {
	return q.claim(ctx, hot, limits)
}

// ClaimDue claims delayed rows that are due, as Claim does.
func (q *Queue) ClaimDue(ctx context.Context, limits ClaimLimits) (*Claim, error) {
	return q.claim(ctx, delayed, limits)
}

func (q *Queue) claim(ctx context.Context, t *table, limits ClaimLimits) (*Claim, error) {
	if t != hot || len(limits.Only) > 0 {
		return q.claimFrom(ctx, t, limits, start{})
	}
	for _, force := range [...]bool{false, true} {
		began := time.Now()
		at, err := q.findStart(ctx, request{began: began, force: force})
		if err != nil {
			return nil, fmt.Errorf("claim rows: %w", err)
		}
		c, err := q.claimFrom(ctx, t, limits, at)
		switch {
		case err != nil || !at.isWhole():
		case c == nil:
			q.planner.sawAll(began)
		case len(c.Left) == 0 && !c.full:
			c.sawAll = began
		}
		if c != nil || err != nil || !at.mayHaveMore {
			return c, err
		}
	}
	return nil, nil
}

func (q *Queue) claimFrom(ctx context.Context, t *table, limits ClaimLimits, at start) (*Claim, error) {
	tx, err := q.db.Claims.BeginTx(ctx, nil) // READ COMMITTED by the session
	if err != nil {
		return nil, fmt.Errorf("begin claim: %w", err)
	}
	c := &Claim{queue: q, tx: tx, table: t, named: len(limits.Only) > 0}
	if t == hot && !c.named {
		c.Unseen = q.planner.lastSawAll()
	}
	if err := c.fetch(ctx, limits, at); err != nil {
		return nil, errors.Join(fmt.Errorf("claim rows: %w", err), c.Release())
	}
	if len(c.Rows) == 0 {
		return nil, c.Release()
	}
	return c, nil
}

// TookAll reports whether the claim left out no visible row of cache_outbox, except those in Pass and
// those that other sessions hold.
func (c *Claim) TookAll() bool { return !c.sawAll.IsZero() }

// More claims rows that were committed since a claim that TookAll. It returns nil if there are none.
// They belong to the transaction of c: Settle settles them too, and Release releases them. An error
// does not end c.
func (c *Claim) More(ctx context.Context, limits ClaimLimits) (*Claim, error) {
	began := time.Now()
	held := c.AllRows()
	more := &Claim{queue: c.queue, tx: c.tx, table: c.table, Unseen: c.sawAll, held: held}
	if err := more.fetch(ctx, limits, start{}); err != nil {
		return nil, fmt.Errorf("claim more rows: %w", err)
	}
	c.sawAll = time.Time{}
	if len(more.Left) == 0 && !more.full {
		c.sawAll = began
	}
	if len(more.Rows) == 0 {
		return nil, nil
	}
	c.all = slices.SortedFunc(slices.Values(slices.Concat(held, more.Rows)), compareIDs)
	return more, nil
}

// AllRows returns the rows of the claim and of More, in ascending order of their IDs.
func (c *Claim) AllRows() []ClaimedRow {
	if c.all == nil {
		return c.Rows
	}
	return c.all
}

func compareIDs(a, b ClaimedRow) int { return cmp.Compare(a.ID, b.ID) }

// isHeld reports whether an earlier claim of the transaction has the row: no session skips its own
// locks.
func (c *Claim) isHeld(r ClaimedRow) bool {
	_, held := slices.BinarySearchFunc(c.held, r, compareIDs)
	return held
}

// Release releases the rows. The next claim may take them immediately.
func (c *Claim) Release() error {
	return dberr.Wrap(release(c.tx), "release rows")
}

// fetch reads the rows with their small parameters, and then the larger parameters within the byte
// limit.
func (c *Claim) fetch(ctx context.Context, limits ClaimLimits, at start) error {
	inline := min(limits.ParamsBytes, limits.Bytes/limits.Rows)
	if limits.Large > 0 {
		inline = min(inline, limits.Large)
	}
	for _, q := range c.table.claimQueries(inline, at, limits) {
		if left := limits.Rows - len(c.Rows); left > 0 {
			if err := c.claimRows(ctx, q.query, append(q.args, left)...); err != nil {
				return err
			}
		}
	}
	c.full = len(c.Rows) == limits.Rows
	if c.table == hot && !c.named {
		c.queue.planner.claimed(c.full)
	}
	if len(c.held) > 0 {
		c.Rows = slices.DeleteFunc(c.Rows, c.isHeld)
	}
	return c.fetchLarge(ctx, inline, limits)
}

// Contract of a claim: exclusive record locks on the rows that it returns and on no other (READ
// COMMITTED, primary key, SKIP LOCKED), LIMIT rows. It covers the IDs from one on except those in
// Pass, or the IDs listed. Repeating it elsewhere returns other rows. The index hint prevents a
// scan in another order. Larger parameters are returned as NULL with their length.
const claimHotSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), COALESCE(trace, ''), created_at
FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED`

// A boundQuery is a statement of a claim with its arguments, except the last one, which limits the
// rows.
type boundQuery struct {
	query string
	args  []any
}

// claimQueries returns the statements of a claim, oldest rows first. They leave out parameters of
// more than inline bytes.
func (t *table) claimQueries(inline int, at start, limits ClaimLimits) (list []boundQuery) {
	if len(limits.Only) > 0 {
		return []boundQuery{{fmt.Sprintf(t.claimSomeSQL, "("+named(limits.Only)+")"), []any{inline}}}
	}
	pass := ""
	if len(limits.Pass) > 0 {
		pass = " AND NOT (" + named(limits.Pass) + ")"
	}
	all, args := "TRUE", []any{inline}
	if t == hot {
		all, args = "id >= ?", append(args, at.head)
	}
	if len(at.stragglers) > 0 { // only of hot
		list = append(list, boundQuery{fmt.Sprintf(t.claimSomeSQL, "("+spanned(at.stragglers)+")"+pass), []any{inline}})
	}
	if pass == "" { // this one is prepared
		return append(list, boundQuery{t.claimSQL, args})
	}
	return append(list, boundQuery{fmt.Sprintf(t.claimSomeSQL, all+pass), args})
}

// named returns a condition that matches the IDs.
func named(ids []uint64) string {
	ids = slices.Sorted(slices.Values(ids))
	return spanned(spansUpTo(ids, len(ids)))
}

// claimRows claims rows.
func (c *Claim) claimRows(ctx context.Context, query string, args ...any) error {
	rows, err := c.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	var fields []any
	for rows.Next() {
		c.Rows = append(c.Rows, ClaimedRow{})
		r := &c.Rows[len(c.Rows)-1]
		fields = append(fields[:0], &r.ID, &r.Entity, &r.EntityID, &r.Params, &r.ParamsBytes, &r.Trace, &r.CreatedAt)
		if c.table != hot {
			fields = append(fields, &r.FirstID, &r.Attempts, &r.Repeated, &r.LastError)
		}
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		if c.table == hot {
			r.FirstID = r.ID
		}
	}
	return rows.Err()
}

// fetchLarge fetches the parameters between inline and the limit, row by row, and removes the rows
// that exceed the byte limit from the claim. They stay in the table for the next claim.
func (c *Claim) fetchLarge(ctx context.Context, inline int, limits ClaimLimits) error {
	bytes := 0
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.ParamsBytes > limits.ParamsBytes || limits.Large > 0 && r.ParamsBytes > limits.Large {
			continue
		}
		bytes += r.ParamsBytes
		if i > 0 && bytes > limits.Bytes {
			for ; i < len(c.Rows); i++ {
				c.Left = append(c.Left, c.Rows[i].ID)
			}
			c.Rows = c.Rows[:len(c.Rows)-len(c.Left)]
			return nil
		}
		if r.ParamsBytes <= inline {
			continue
		}
		// Contract: no further lock (the claim has locked the row), one row by primary key.
		query := "SELECT params FROM " + c.table.name + " WHERE id = " + strconv.FormatUint(r.ID, 10)
		if err := c.tx.QueryRowContext(ctx, query).Scan(&r.Params); err != nil {
			return fmt.Errorf("fetch parameters of row %d: %w", r.ID, err)
		}
	}
	return nil
}

// Prepared returns the statements of each batch and poll, which a session prepares when it first
// runs them. Otherwise, parsing and resolving them takes a seventh of the cost of a batch of five
// rows in MySQL 9.7, and a fifth in MariaDB 10.11.
func Prepared() []string {
	return []string{firstSQL, headSQL, stragglersSQL, hot.claimSQL, hot.removeSQL, hot.removeOneSQL, RecordSQL, AddSQL}
}

// A table is a table that rows are claimed from, with its statements. Each statement, except the
// claim and the removal of spans, takes a JSON list of its rows, which JSON_TABLE joins to the
// table in a fixed order by the primary key. Nothing weaker limits the server to those rows: a
// queue's statistics swing between empty and full, and with
//
//	DELETE ... WHERE id IN (...)                    -- and also with
//	DELETE ... WHERE id IN (...) ORDER BY id LIMIT n
//
// MySQL 9.7 may scan the table from its start and wait for the first uncommitted insert. MariaDB
// 10.11 may do so with the first form.
type table struct {
	name           string
	claimSQL       string // see the variables below
	claimSomeSQL   string // with a condition on id
	removeSpansSQL string // with a condition to append
	removeOneSQL   string // with a condition on one ID
	removeSQL      string
	deadLetterSQL  string
	delaySQL       string
	repeatSQL      string
}

// hot is the table that applications insert into.
var hot = &table{
	name:           "cache_outbox",
	claimSQL:       fmt.Sprintf(claimHotSQL, "id >= ?"),
	claimSomeSQL:   claimHotSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox") + "id = ?",
	removeSQL:      fmt.Sprintf(session.RemoveSQL, "cache_outbox"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.id, 0, 0", "cache_outbox"),
	delaySQL:       fmt.Sprintf(delaySQL, "cache_outbox"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.id", "cache_outbox"),
}

// Contract: as claimHotSQL, over the index on due_at: for each row returned, its entry and the
// primary key's are locked. A condition on id follows; MariaDB also locks the rows that it leaves
// out.
const claimDelayedSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), COALESCE(trace, ''), created_at, first_id, attempts, repeated, COALESCE(error, '')
FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND %s ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED`

// delayed is the table of rows with a due time.
var delayed = &table{
	name:           "cache_outbox_delayed",
	claimSQL:       fmt.Sprintf(claimDelayedSQL, "TRUE"),
	claimSomeSQL:   claimDelayedSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed") + "id = ?",
	removeSQL:      fmt.Sprintf(session.RemoveSQL, "cache_outbox_delayed"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.first_id, o.attempts, o.repeated", "cache_outbox_delayed"),
	delaySQL:       fmt.Sprintf(delayAgainSQL, "cache_outbox_delayed"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.first_id", "cache_outbox_delayed"),
}

// A databaseClock estimates how far the database's clock is ahead of this process's clock. Safe for
// concurrent use.
type databaseClock struct {
	ahead         atomic.Int64 // nanoseconds
	read, setBack atomic.Bool  // see Queue.ClockSetBack
}

// createdSlack is by how much two readings of the database's clock may differ from this process's
// clock, for example while the process is briefly stopped.
const createdSlack = time.Second

// observe records a reading of the database's clock that was taken between sent and now.
func (c *databaseClock) observe(sent time.Time, said time.Time) {
	ahead := int64(said.Sub(sent.Add(time.Since(sent) / 2)))
	if before := c.ahead.Swap(ahead); !c.read.Swap(true) || before-ahead > int64(createdSlack) {
		c.setBack.Store(true)
	}
}

// ClockSetBack reports whether the database's clock may have been set back since the last call: at
// the first reading, and if a reading was earlier than expected by more than a second.
func (q *Queue) ClockSetBack() bool { return q.clock.setBack.Swap(false) }

// Age returns the age of a row at a time of this process's clock. It uses the database's clock as
// of the last PollState, and before the first one this process's clock. An application may write
// any time with plain SQL; the age of a row from the future is 0.
func (q *Queue) Age(r *ClaimedRow, at time.Time) time.Duration {
	return max(at.Add(time.Duration(q.clock.ahead.Load())).Sub(r.CreatedAt), 0)
}

// Now returns the database's time at a time of this process's clock, as Age estimates it.
func (q *Queue) Now(at time.Time) time.Time {
	return at.Add(time.Duration(q.clock.ahead.Load()))
}

// Contract: no lock (a consistent read); the index on due_at, from the rows that are not due to its
// end, until LIMIT rows are found. Rows that the application scheduled and repeats have no reason.
const lateRetriesSQL = `SELECT id FROM cache_outbox_delayed FORCE INDEX (due)
WHERE due_at > UTC_TIMESTAMP(6) AND reason <> '' AND due_at > UTC_TIMESTAMP(6) + INTERVAL COALESCE(retry_us, ?) MICROSECOND LIMIT 1000`

// Contract: exclusive locks on the rows listed, found by primary key, and on their entries of the
// index on due_at. Repeating it is harmless.
const advanceRetriesSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_delayed AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.due_at = LEAST(o.due_at, UTC_TIMESTAMP(6) + INTERVAL COALESCE(o.retry_us, ?) MICROSECOND) WHERE o.reason <> ''`

// AdvanceRetries makes retries that are due later than a worker delayed them due after that delay,
// and returns how many. Their due time was written before the database's clock was set back. Rows
// of workers that do not record the delay are due after longest.
func (q *Queue) AdvanceRetries(ctx context.Context, longest time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.db.Config.StatementTimeout)
	defer cancel()
	for {
		var ids []uint64
		if err := q.db.Side.SelectContext(ctx, &ids, lateRetriesSQL, longest.Microseconds()); err != nil {
			return n, fmt.Errorf("find late retries: %w", err)
		}
		if len(ids) == 0 {
			return n, nil
		}
		changed, err := session.Affected(q.db.Side.ExecContext(ctx, advanceRetriesSQL, jsonText(ids), longest.Microseconds()))
		if err != nil {
			return n, fmt.Errorf("advance retries: %w", err)
		}
		n += int(changed)
	}
}
