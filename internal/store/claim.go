package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/unstale/unstale/outbox"
)

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
		at, err := q.begin(ctx, request{began: began, force: force})
		if err != nil {
			return nil, fmt.Errorf("claim rows: %w", err)
		}
		c, err := q.claimFrom(ctx, t, limits, at)
		switch {
		case err != nil || !at.isWhole():
		case c == nil:
			q.planner.sawAll(began)
		case len(c.Left) == 0 && len(c.Rows) < limits.Rows:
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

// Release releases the rows. The next claim may take them immediately.
func (c *Claim) Release() error {
	if err := c.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("release rows: %w", err)
	}
	return nil
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
			if err := c.read(ctx, q.query, append(q.args, left)...); err != nil {
				return err
			}
		}
	}
	if c.table == hot && !c.named {
		c.queue.planner.claimed(len(c.Rows) == limits.Rows)
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
	if t != hot {
		if pass == "" {
			return []boundQuery{{t.claimSQL, []any{inline}}}
		}
		return []boundQuery{{fmt.Sprintf(t.claimSomeSQL, "TRUE"+pass), []any{inline}}}
	}
	if len(at.stragglers) > 0 {
		list = append(list, boundQuery{fmt.Sprintf(claimHotSQL, "("+spanned(at.stragglers)+")"+pass), []any{inline}})
	}
	if pass == "" {
		return append(list, boundQuery{t.claimSQL, []any{inline, at.head}})
	}
	return append(list, boundQuery{fmt.Sprintf(claimHotSQL, "id >= ?"+pass), []any{inline, at.head}})
}

// named returns a condition that matches the IDs.
func named(ids []uint64) string {
	ids = slices.Sorted(slices.Values(ids))
	return spanned(spansUpTo(ids, len(ids)))
}

// read claims rows.
func (c *Claim) read(ctx context.Context, query string, args ...any) error {
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
