package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// A Settlement says what becomes of a claim's rows. Rows that it does not name stay where they are.
type Settlement struct {
	Done     []uint64  // unlinked: deleted
	Delays   []Delay   // try again later
	Dead     []DeadRow // to the dead letters
	Repeats  []Repeat  // once more later, whatever else becomes of the row
	Sweeps   []Sweep   // work that outlives the batch
	Journal  []Entry   // what was unlinked, one entry a row; none, no journal row
	Position Position  // after which all of it was unlinked, for the journal
	// Born is a time of Redis before the first of it was unlinked, in microseconds since 1970, for the journal. 0: not
	// known.
	Born  uint64
	Marks Marks // of the way to here, for the journal
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

// A DeadRow moves a row to the dead letters.
type DeadRow struct {
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
	manyIDs       = 16   // for which spans are worth a try: for a few rows of a small table MySQL prefers a scan
)

// Settle carries s out and commits: all of it or nothing. After an error the claim is over; whether its rows were
// settled is unknown only if COMMIT failed, and then they are either gone or free to be claimed again.
func (c *Claim) Settle(ctx context.Context, s Settlement) error {
	gone, err := c.settle(ctx, s)
	if err != nil {
		_ = c.tx.Rollback() // err says why; the server rolls back in any case
		return fmt.Errorf("settle rows: %w", err)
	}
	if err := c.store.commit(c.tx); err != nil {
		return fmt.Errorf("settle rows: %w", err)
	}
	if c.queue == hot && !c.named {
		c.store.planner.settled(time.Now(), c.Rows, gone)
		if len(gone) == len(c.Rows) {
			c.store.planner.sawAll(c.sawAll)
		}
	}
	return nil
}

// settle returns the rows that are not in the queue any more.
func (c *Claim) settle(ctx context.Context, s Settlement) (gone []uint64, err error) {
	gone = append(gone, s.Done...)
	if err := requestSweeps(ctx, c.tx, s.Sweeps); err != nil {
		return nil, fmt.Errorf("request sweeps: %w", err)
	}
	for part := range slices.Chunk(s.Repeats, settleChunk) {
		if err := c.repeat(ctx, part); err != nil {
			return nil, fmt.Errorf("repeat: %w", err)
		}
	}
	for part := range slices.Chunk(s.Delays, settleChunk) {
		if err := c.delay(ctx, part); err != nil {
			return nil, fmt.Errorf("delay: %w", err)
		}
		if c.queue == hot { // a delayed row is delayed again in place
			gone = appendIDs(gone, part, func(d Delay) uint64 { return d.ID })
		}
	}
	for part := range slices.Chunk(s.Dead, settleChunk) {
		if err := c.deadLetter(ctx, part, s.MapVersion); err != nil {
			return nil, fmt.Errorf("dead-letter: %w", err)
		}
		gone = appendIDs(gone, part, func(d DeadRow) uint64 { return d.ID })
	}
	if err := c.journal(ctx, s); err != nil {
		return nil, fmt.Errorf("write journal: %w", err)
	}
	for part := range slices.Chunk(gone, 4*settleChunk) {
		if err := c.remove(ctx, part); err != nil {
			return nil, fmt.Errorf("delete: %w", err)
		}
	}
	return gone, nil
}

// Contract: exclusive record locks on the rows listed, which the claim holds already, found by primary key; no other
// row is looked at. As many rows as are listed. Repeating it deletes nothing.
const removeSQL = `DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: as removeSQL, for the rows of a condition on id that follows. The comments are each executed by one of the
// two servers, so that statistics cannot make either scan the table. Both use the safe mode: MariaDB's then forces a
// range, in a statement about one table; MySQL's refuses a scan before a row was looked at (1175, see isScan), in one
// that could be about several.
const removeSpansSQL = "/*M!100100 SET STATEMENT sql_safe_updates=1 FOR */ DELETE /*+ SET_VAR(sql_safe_updates=1) */ /*!80000 o */ " +
	"FROM %s /*!80000 AS o FORCE INDEX (PRIMARY) */ WHERE "

// remove deletes rows of the claim. One of our own rows that is missing means that somebody else deleted it, and
// nothing is settled twice in silence.
func (c *Claim) remove(ctx context.Context, ids []uint64) error {
	n, err := int64(-1), error(nil)
	switch {
	case len(ids) == 1:
		n, err = affected(c.tx.ExecContext(ctx, c.queue.removeOneSQL, ids[0]))
	case len(ids) >= manyIDs:
		n, err = c.removeSpans(ctx, ids)
	}
	if n < 0 && err == nil {
		n, err = c.run(ctx, c.queue.removeSQL, ids)
	}
	if err == nil && n != int64(len(ids)) {
		err = fmt.Errorf("%d of %d claimed rows were there; does something else delete from %s?", n, len(ids), c.queue.name)
	}
	return err
}

// removeSpans removes spans of ids, which costs half of what it does one by one (MySQL 9.7: 3.2 ms and 5.8 ms for 1,000
// rows; MariaDB 10.11: 1.3 and 3.4). It returns -1 where the ids make too many spans, or the server would scan the
// table instead of them.
func (c *Claim) removeSpans(ctx context.Context, ids []uint64) (int64, error) {
	slices.Sort(ids)
	list := spans(ids)
	if list == nil {
		return -1, nil
	}
	n, err := affected(c.tx.ExecContext(ctx, c.queue.removeSpansSQL+spanned(list)))
	if isScan(err) {
		return -1, nil
	}
	return n, err
}

// A disposal is one element of the list that the statements of a queue take.
type disposal struct {
	ID       uint64 `json:"id"`
	After    int64  `json:"after,omitempty"` // microseconds
	Attempts int    `json:"attempts,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Error    string `json:"error,omitempty"`
	Map      string `json:"map,omitempty"` // version
}

// listed joins the rows listed to a table, as removeSQL does.
const listed = `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.id', after BIGINT PATH '$.after' DEFAULT '0' ON EMPTY,
  attempts INT PATH '$.attempts' DEFAULT '0' ON EMPTY, reason VARCHAR(32) PATH '$.reason' DEFAULT '""' ON EMPTY,
  error TEXT PATH '$.error' DEFAULT '""' ON EMPTY, map VARCHAR(12) PATH '$.map' DEFAULT '""' ON EMPTY)) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: reads rows of the claim by primary key without a lock (READ COMMITTED), appends as many to the dead
// letters. Its effect ends with the claim's transaction, so repeating it takes a new claim.
const deadLetterSQL = `INSERT INTO cache_outbox_dead
(entity, entity_id, params, trace, created_at, first_id, attempts, repeated, reason, error, map_version)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, %s, j.reason, j.error, j.map
FROM ` + listed

// deadLetter copies rows to the dead letters inside the server, so that they stay exactly as they were.
func (c *Claim) deadLetter(ctx context.Context, dead []DeadRow, mapVersion string) error {
	list := make([]disposal, len(dead))
	for i, d := range dead {
		list[i] = disposal{ID: d.ID, Reason: d.Reason, Error: errorText(d.Error), Map: mapVersion}
	}
	_, err := c.run(ctx, c.queue.deadLetterSQL, list)
	return err
}

// Contract: as deadLetterSQL, to cache_outbox_delayed.
const (
	delaySQL = `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, first_id, due_at, attempts, reason, error)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, o.id,
  UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, j.attempts, j.reason, j.error
FROM ` + listed
	repeatSQL = `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, first_id, due_at, repeated)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, %s,
  UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, 1
FROM ` + listed
)

// Contract: exclusive record locks on the rows listed, which the claim holds already, and on their entries of the index
// on due_at. Repeating it moves due_at again.
const delayAgainSQL = `UPDATE ` + listed + `
SET o.due_at = UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, o.attempts = j.attempts, o.reason = j.reason, o.error = j.error`

// delay puts rows off: in place when they are delayed already, otherwise by a copy inside the server.
func (c *Claim) delay(ctx context.Context, delays []Delay) error {
	list := make([]disposal, len(delays))
	for i, d := range delays {
		list[i] = disposal{ID: d.ID, After: d.After.Microseconds(), Attempts: d.Attempts, Reason: d.Reason, Error: errorText(d.Error)}
	}
	_, err := c.run(ctx, c.queue.delaySQL, list)
	return err
}

// repeat schedules copies of rows.
func (c *Claim) repeat(ctx context.Context, repeats []Repeat) error {
	list := make([]disposal, len(repeats))
	for i, r := range repeats {
		list[i] = disposal{ID: r.ID, After: r.After.Microseconds()}
	}
	_, err := c.run(ctx, c.queue.repeatSQL, list)
	return err
}

// run executes a statement of the claim's queue over a list.
func (c *Claim) run(ctx context.Context, query string, list any) (int64, error) {
	text, err := json.Marshal(list)
	if err != nil {
		return 0, err
	}
	return affected(c.exec(ctx, query, len(text), string(text)))
}

// affected is how many rows a statement changed.
func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Contract: no lock.
const packetSQL = "SELECT @@SESSION.max_allowed_packet"

// exec executes a statement whose largest argument has that many bytes. An argument that is larger than a packet has no
// error number of its own, so the server is asked for its limit.
func (c *Claim) exec(ctx context.Context, query string, largest int, args ...any) (sql.Result, error) {
	res, err := c.tx.ExecContext(ctx, query, args...)
	if mysqlerr.Number(err) != mysqlerr.Unknown {
		return res, err
	}
	var limit int
	if asked := c.tx.QueryRowContext(ctx, packetSQL).Scan(&limit); asked == nil && largest >= limit {
		err = fmt.Errorf("%w (%d bytes): %w", errTooLarge, limit, err)
	}
	return nil, err
}

func appendIDs[T any](ids []uint64, items []T, id func(T) uint64) []uint64 {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
}

// errorText keeps an error's head, cut at a character.
func errorText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorBytes], "") + "..."
}
