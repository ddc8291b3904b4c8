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
	FirstID     uint64    // in cache_outbox, where it began; 0 if it never was there
	Entity      string    // as written
	EntityID    string    // as written
	Params      []byte    // JSON text as written; nil when there are none or they are too large
	ParamsBytes int       // their size in the table
	Trace       string    // as written
	CreatedAt   time.Time // UTC, the database's clock
	Attempts    int       // failures of its own so far
	Repeated    bool      // a repeat that the map asked for
	LastError   string    // of the last failure; empty if there was none
}

// Unread reports whether the parameters were not fetched: they are larger than ClaimLimits.ParamsBytes, or than
// ClaimLimits.Large.
func (r *ClaimedRow) Unread() bool { return r.Params == nil && r.ParamsBytes > 0 }

// TruncatedField names the field that fills its column, "" if none does. A column is wider than the limit by one
// character, so a non-strict sql_mode has cut the value: it is not what the application meant.
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

// ClaimLimits bound one claim. All are required.
type ClaimLimits struct {
	Rows        int // at most this many rows
	Bytes       int // at most this many bytes of parameters, but one row always fits
	ParamsBytes int // larger parameters are not fetched: see Row.Oversized

	// Pass names rows, by their ids in the table, that the claim passes over. At most MaxNamed.
	Pass []uint64
	// Only, if set, names the rows that the claim takes, of those that are there. At most MaxNamed. It and Pass exclude each
	// other.
	Only []uint64
	// Large, if set, leaves parameters of more bytes unfetched, though they are within ParamsBytes: see ClaimedRow.Unread.
	Large int
}

// MaxNamed is how many rows a claim can pass over, or ask for.
const MaxNamed = 1000

// A Claim is one open transaction that holds rows. It must end with Settle or Release. Not safe for concurrent use.
type Claim struct {
	Rows []ClaimedRow
	// Left are the ids of rows that the byte limit left out.
	Left []uint64
	// Unseen is when the last poll or claim of this Store began after which no row was left in cache_outbox that had been
	// committed by then, but for those that others held: so none of Rows was visible earlier, unless another worker had
	// it. Zero: there was none, or Rows are delayed ones.
	Unseen time.Time
	store  *Store
	tx     *sql.Tx
	queue  *queue
	named  bool      // it asked for rows by their ids
	sawAll time.Time // when it began, if it left no visible row out but those to be passed over; otherwise zero
}

// IsDelayed reports whether the rows are of cache_outbox_delayed.
func (c *Claim) IsDelayed() bool { return c.queue != hot }

// Claim takes the oldest rows that nobody else holds. A claim without rows is nil. Its ctx must outlive the claim: when
// it ends, the rows are released.
func (s *Store) Claim(ctx context.Context, limits ClaimLimits) (*Claim, error) {
	return s.claim(ctx, hot, limits)
}

// ClaimDue takes delayed rows whose time has come, as Claim does.
func (s *Store) ClaimDue(ctx context.Context, limits ClaimLimits) (*Claim, error) {
	return s.claim(ctx, delayed, limits)
}

func (s *Store) claim(ctx context.Context, q *queue, limits ClaimLimits) (*Claim, error) {
	if q != hot || len(limits.Only) > 0 {
		return s.claimFrom(ctx, q, limits, start{})
	}
	for _, force := range [...]bool{false, true} {
		began := time.Now()
		at, err := s.begin(ctx, request{began: began, force: force})
		if err != nil {
			return nil, fmt.Errorf("claim rows: %w", err)
		}
		c, err := s.claimFrom(ctx, q, limits, at)
		switch {
		case err != nil || !at.isWhole():
		case c == nil:
			s.planner.sawAll(began)
		case len(c.Left) == 0 && len(c.Rows) < limits.Rows:
			c.sawAll = began
		}
		if c != nil || err != nil || !at.mayHaveMore {
			return c, err
		}
	}
	return nil, nil
}

func (s *Store) claimFrom(ctx context.Context, q *queue, limits ClaimLimits, at start) (*Claim, error) {
	tx, err := s.claims.BeginTx(ctx, nil) // READ COMMITTED by the session
	if err != nil {
		return nil, fmt.Errorf("begin claim: %w", err)
	}
	c := &Claim{store: s, tx: tx, queue: q, named: len(limits.Only) > 0}
	if q == hot && !c.named {
		c.Unseen = s.planner.lastSawAll()
	}
	if err := c.fetch(ctx, limits, at); err != nil {
		return nil, errors.Join(fmt.Errorf("claim rows: %w", err), c.Release())
	}
	if len(c.Rows) == 0 {
		return nil, c.Release()
	}
	return c, nil
}

// Release gives the rows back: the next claim may take them at once.
func (c *Claim) Release() error {
	if err := c.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("release rows: %w", err)
	}
	return nil
}

// fetch reads rows with small parameters at once; the others follow within the byte limit.
func (c *Claim) fetch(ctx context.Context, limits ClaimLimits, at start) error {
	inline := min(limits.ParamsBytes, limits.Bytes/limits.Rows)
	if limits.Large > 0 {
		inline = min(inline, limits.Large)
	}
	for _, q := range c.queue.claimQueries(inline, at, limits) {
		if left := limits.Rows - len(c.Rows); left > 0 {
			if err := c.read(ctx, q.query, append(q.args, left)...); err != nil {
				return err
			}
		}
	}
	if c.queue == hot && !c.named {
		c.store.planner.claimed(len(c.Rows) == limits.Rows)
	}
	return c.fetchLarge(ctx, inline, limits)
}

// Contract of a claim of ids from one on, but for some, or of those listed: exclusive record locks on the rows that it
// returns and on no other (READ COMMITTED, primary key, SKIP LOCKED), LIMIT rows; repeating it elsewhere returns other rows. The hint
// keeps the optimizer from a scan in another order. Larger parameters come as NULL with their length.
const claimHotSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), trace, created_at
FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED`

// A boundQuery is a statement of a claim, with its arguments but the last, which limits the rows.
type boundQuery struct {
	query string
	args  []any
}

// claimQueries are the statements of a claim, oldest rows first. Parameters of more than inline bytes are left out.
func (q *queue) claimQueries(inline int, at start, limits ClaimLimits) (list []boundQuery) {
	if len(limits.Only) > 0 {
		return []boundQuery{{fmt.Sprintf(q.claimSomeSQL, "("+named(limits.Only)+")"), []any{inline}}}
	}
	pass := ""
	if len(limits.Pass) > 0 {
		pass = " AND NOT (" + named(limits.Pass) + ")"
	}
	if q != hot {
		if pass == "" {
			return []boundQuery{{q.claimSQL, []any{inline}}}
		}
		return []boundQuery{{fmt.Sprintf(q.claimSomeSQL, "TRUE"+pass), []any{inline}}}
	}
	if len(at.stragglers) > 0 {
		list = append(list, boundQuery{fmt.Sprintf(claimHotSQL, "("+spanned(at.stragglers)+")"+pass), []any{inline}})
	}
	if pass == "" {
		return append(list, boundQuery{q.claimSQL, []any{inline, at.head}})
	}
	return append(list, boundQuery{fmt.Sprintf(claimHotSQL, "id >= ?"+pass), []any{inline, at.head}})
}

// named is a condition on id for a list of ids, which it sorts.
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
		if c.queue != hot {
			fields = append(fields, &r.FirstID, &r.Attempts, &r.Repeated, &r.LastError)
		}
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		if c.queue == hot {
			r.FirstID = r.ID
		}
	}
	return rows.Err()
}

// fetchLarge fills in parameters between inline and the limit, row by row, and drops the rows that exceed the byte
// limit from the claim: they stay in the table for the next one.
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
		// Contract: no further lock (the row is ours), one row by primary key.
		query := "SELECT params FROM " + c.queue.name + " WHERE id = " + strconv.FormatUint(r.ID, 10)
		if err := c.tx.QueryRowContext(ctx, query).Scan(&r.Params); err != nil {
			return fmt.Errorf("fetch parameters of row %d: %w", r.ID, err)
		}
	}
	return nil
}
