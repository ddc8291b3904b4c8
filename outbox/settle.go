package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Settlement says what becomes of a claim's rows. Rows that it does not name stay where they are.
type Settlement struct {
	Done    []uint64 // unlinked: deleted
	Delays  []Delay  // try again later
	Deaths  []Death  // to the dead letters
	Repeats []Repeat // once more later, whatever else becomes of the row
	Sweeps  []Sweep  // work that outlives the batch
	Journal []Entry  // what was unlinked, one entry a row; none, no journal row
	// MapVersion of the map that decided all this, for the dead letters and the journal.
	MapVersion string
}

// A Delay puts a row off, with the reason that an operator will see.
type Delay struct {
	ID       uint64
	After    time.Duration // from the database's now
	Attempts int           // its new count
	Reason   string
	Error    string
}

// A Death buries a row.
type Death struct {
	ID     uint64
	Reason string
	Error  string
}

// A Repeat copies a row to cache_outbox_delayed, marked so that it does not repeat again.
type Repeat struct {
	ID    uint64
	After time.Duration
}

const (
	maxErrorBytes = 4096 // of a row's error text; the column holds 65,535
	settleChunk   = 500  // rows a statement
)

// Settle carries s out and commits: all of it or nothing. After an error the claim is over; whether its rows
// were settled is unknown only if COMMIT failed, and then they are either gone or free to be claimed again.
func (c *Claim) Settle(ctx context.Context, s Settlement) error {
	if err := c.settle(ctx, s); err != nil {
		_ = c.tx.Rollback() // err says why; the server rolls back in any case
		return fmt.Errorf("settle rows: %w", err)
	}
	if err := c.tx.Commit(); err != nil {
		return fmt.Errorf("settle rows: commit: %w", err)
	}
	return nil
}

func (c *Claim) settle(ctx context.Context, s Settlement) error {
	gone := append([]uint64(nil), s.Done...)
	if err := c.requestSweeps(ctx, s.Sweeps); err != nil {
		return fmt.Errorf("request sweeps: %w", err)
	}
	if err := c.repeat(ctx, s.Repeats); err != nil {
		return fmt.Errorf("repeat: %w", err)
	}
	for part := range slices.Chunk(s.Delays, settleChunk) {
		if err := c.delay(ctx, part); err != nil {
			return fmt.Errorf("delay: %w", err)
		}
		if c.queue == hot { // a delayed row is put off in place
			gone = appendIDs(gone, part, func(d Delay) uint64 { return d.ID })
		}
	}
	for part := range slices.Chunk(s.Deaths, settleChunk) {
		if err := c.bury(ctx, part, s.MapVersion); err != nil {
			return fmt.Errorf("bury: %w", err)
		}
		gone = appendIDs(gone, part, func(d Death) uint64 { return d.ID })
	}
	if err := c.journal(ctx, s.Journal, s.MapVersion); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	for part := range slices.Chunk(gone, 4*settleChunk) {
		if err := c.remove(ctx, part); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

// remove deletes rows of the claim.
//
// Contract: locks nothing that the claim does not hold. ORDER BY and LIMIT make the server walk the primary
// key to these ids; without them it may scan, wait for other claims and deadlock. One of our own rows that is
// missing means that somebody else deleted it, and nothing is settled twice in silence.
func (c *Claim) remove(ctx context.Context, ids []uint64) error {
	query := "DELETE FROM " + c.queue.name + " WHERE id IN (" + list(ids) + ") ORDER BY id LIMIT " + strconv.Itoa(len(ids))
	res, err := c.tx.ExecContext(ctx, query)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n != int64(len(ids)) {
		return fmt.Errorf("%d of %d claimed rows were there; does something else delete from %s?", n, len(ids), c.queue.name)
	}
	return nil
}

// bury copies rows to the dead letters inside the server, so that they stay exactly as they were.
//
// Contract: reads rows of the claim (no further lock under READ COMMITTED), appends at most settleChunk rows.
func (c *Claim) bury(ctx context.Context, deaths []Death, mapVersion string) error {
	ids := appendIDs(nil, deaths, func(d Death) uint64 { return d.ID })
	query := `INSERT INTO cache_outbox_dead
(entity, entity_id, params, trace, created_at, first_id, attempts, repeated, reason, error, map_version)
SELECT entity, entity_id, params, trace, created_at, ` + c.queue.origin() + ", " + pick(ids) + ", " + pick(ids) + `, ?
FROM ` + c.queue.name + " WHERE id IN (" + list(ids) + ") ORDER BY id"
	args := make([]any, 0, 2*len(deaths)+1)
	for _, d := range deaths {
		args = append(args, d.Reason)
	}
	for _, d := range deaths {
		args = append(args, errorText(d.Error))
	}
	_, err := c.tx.ExecContext(ctx, query, append(args, mapVersion)...)
	return err
}

// delay puts rows off: in place when they are delayed already, otherwise by a copy inside the server.
//
// Contract: as bury; the update by primary key touches rows of the claim only.
func (c *Claim) delay(ctx context.Context, delays []Delay) error {
	ids := appendIDs(nil, delays, func(d Delay) uint64 { return d.ID })
	var due, attempts, reasons, errs []any
	for _, d := range delays {
		due = append(due, d.After.Microseconds())
		attempts = append(attempts, d.Attempts)
		reasons = append(reasons, d.Reason)
		errs = append(errs, errorText(d.Error))
	}
	dueAt := "UTC_TIMESTAMP(6) + INTERVAL " + pick(ids) + " MICROSECOND"
	where := " WHERE id IN (" + list(ids) + ") ORDER BY id"
	query := `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, first_id, repeated, due_at, attempts, reason, error)
SELECT entity, entity_id, params, trace, created_at, id, 0, ` +
		dueAt + ", " + pick(ids) + ", " + pick(ids) + ", " + pick(ids) + " FROM cache_outbox" + where
	if c.queue == delayed {
		query = "UPDATE cache_outbox_delayed SET due_at = " + dueAt + ", attempts = " + pick(ids) +
			", reason = " + pick(ids) + ", error = " + pick(ids) + where + " LIMIT " + strconv.Itoa(len(ids))
	}
	args := append(append(append(due, attempts...), reasons...), errs...)
	_, err := c.tx.ExecContext(ctx, query, args...)
	return err
}

// repeat schedules copies of rows, one statement for each distinct time.
//
// Contract: as bury.
func (c *Claim) repeat(ctx context.Context, repeats []Repeat) error {
	byTime := map[time.Duration][]uint64{}
	for _, r := range repeats {
		byTime[r.After] = append(byTime[r.After], r.ID)
	}
	for after, all := range byTime {
		for ids := range slices.Chunk(all, 4*settleChunk) {
			query := `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, due_at, first_id, attempts, repeated)
SELECT entity, entity_id, params, trace, created_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ` + c.queue.first() + `, 0, 1
FROM ` + c.queue.name + " WHERE id IN (" + list(ids) + ") ORDER BY id"
			if _, err := c.tx.ExecContext(ctx, query, after.Microseconds()); err != nil {
				return err
			}
		}
	}
	return nil
}

// origin lists the columns first_id, attempts and repeated as this queue has them.
func (q *queue) origin() string {
	if q == hot {
		return "id, 0, 0"
	}
	return "first_id, attempts, repeated"
}

func (q *queue) first() string {
	if q == hot {
		return "id"
	}
	return "first_id"
}

func appendIDs[T any](ids []uint64, items []T, id func(T) uint64) []uint64 {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
}

// list writes ids for IN (...). They are numbers of ours, so nothing of a row's data becomes SQL.
func list(ids []uint64) string {
	b := make([]byte, 0, 12*len(ids))
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id, 10)
	}
	return string(b)
}

// pick is an expression for "the placeholder that belongs to this row".
func pick(ids []uint64) string {
	return "ELT(FIELD(id," + list(ids) + ")" + strings.Repeat(",?", len(ids)) + ")"
}

// errorText keeps an error's head, cut at a character.
func errorText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorBytes], "") + "..."
}
