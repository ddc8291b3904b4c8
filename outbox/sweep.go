package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// SweepKind says what a Sweep removes.
type SweepKind string

// The kinds of sweeps.
const (
	SweepPattern SweepKind = "pattern" // every key that matches a glob
	SweepSet     SweepKind = "set"     // every member of an index set, and the set
)

// A Sweep is work that outlives a batch.
type Sweep struct {
	ID          uint64    `db:"id"` // set when read
	Kind        SweepKind `db:"kind"`
	Name        string    `db:"name"`         // the pattern or the set, byte for byte
	RequestedAt time.Time `db:"requested_at"` // set when read; UTC, the database's clock

	AgeMicros int64 `db:"age"` // set when read: see Age
}

// Age is how old the request was when it was read, by the database's clock.
func (s *Sweep) Age() time.Duration { return time.Duration(s.AgeMicros) * time.Microsecond }

// Contract: appends at most settleChunk rows a statement; no lock that another insert waits for.
const requestSweepSQL = "INSERT INTO cache_outbox_sweeps (kind, name) VALUES "

// RequestSweeps asks for sweeps that no row asks for. Asking again makes them run again.
func (s *Store) RequestSweeps(ctx context.Context, sweeps []Sweep) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := requestSweeps(ctx, s.side, sweeps); err != nil {
		return fmt.Errorf("request sweeps: %w", err)
	}
	return nil
}

func requestSweeps(ctx context.Context, db sqlx.ExecerContext, sweeps []Sweep) error {
	for part := range slices.Chunk(sweeps, settleChunk) {
		args := make([]any, 0, 2*len(part))
		for _, s := range part {
			args = append(args, string(s.Kind), []byte(s.Name))
		}
		query := requestSweepSQL + strings.Repeat("(?,?),", len(part)-1) + "(?,?)"
		if _, err := db.ExecContext(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// Contract: no lock (a consistent read), at most LIMIT rows of the primary key, oldest first.
const sweepsSQL = `SELECT id, kind, name, requested_at, TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) AS age
FROM cache_outbox_sweeps
WHERE not_before <= UTC_TIMESTAMP(6) ORDER BY id LIMIT ?`

// Sweeps lists the oldest requests that are not put off, at most limit. It locks nothing: what is requested meanwhile comes next.
func (s *Store) Sweeps(ctx context.Context, limit int) ([]Sweep, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var out []Sweep
	if err := s.side.SelectContext(ctx, &out, sweepsSQL, limit); err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	return out, nil
}

// Contract: as removeSQL, for cache_outbox_sweeps. Repeating it is harmless.
var finishSweepsSQL = fmt.Sprintf(removeSQL, "cache_outbox_sweeps")

// Contract: exclusive locks on the rows listed, found by primary key. Repeating it changes swept_at alone.
const settleSweepsSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_sweeps AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.swept_at = UTC_TIMESTAMP(6), o.not_before = o.requested_at + INTERVAL ? MICROSECOND, o.attempts = 0, o.error = NULL`

// Swept says what comes of requests that were carried out.
type Swept struct {
	Finished []Sweep // these are deleted
	Settling []Sweep // these come again, when SettleAfter has passed since their request

	SettleAfter time.Duration
	Beat        Beat // after which all was unlinked
	MapVersion  string
}

// FinishSweeps deletes or keeps exactly these requests and notes in the journal that they were carried out: batches of
// no rows, since their rows have been settled. Repeating it is harmless; after an error some may be noted and others not.
func (s *Store) FinishSweeps(ctx context.Context, swept Swept) error {
	finish := func(tx *sql.Tx, ids string) error {
		_, err := tx.ExecContext(ctx, finishSweepsSQL, ids)
		return err
	}
	settle := func(tx *sql.Tx, ids string) error {
		_, err := tx.ExecContext(ctx, settleSweepsSQL, ids, swept.SettleAfter.Microseconds())
		return err
	}
	for part := range slices.Chunk(swept.Finished, settleChunk) {
		if err := s.noteSwept(ctx, part, swept, finish); err != nil {
			return fmt.Errorf("finish sweeps: %w", err)
		}
	}
	for part := range slices.Chunk(swept.Settling, settleChunk) {
		if err := s.noteSwept(ctx, part, swept, settle); err != nil {
			return fmt.Errorf("keep sweeps for their settling pass: %w", err)
		}
	}
	return nil
}

// noteSwept does something with requests and notes in the journal that they were carried out, both or neither.
func (s *Store) noteSwept(ctx context.Context, sweeps []Sweep, swept Swept, do func(tx *sql.Tx, ids string) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	ids, entries := make([]uint64, len(sweeps)), make([]Entry, len(sweeps))
	for i, w := range sweeps {
		ids[i], entries[i] = w.ID, w.entry()
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	body, err := EncodeEntries(entries)
	if err != nil {
		return err
	}
	tx, err := s.side.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := do(tx, string(list)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, journalSQL, s.record(0, swept.MapVersion, swept.Beat, nil, body)...); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *Sweep) entry() Entry {
	if w.Kind == SweepSet {
		return Entry{ID: w.ID, Sets: []string{w.Name}}
	}
	return Entry{ID: w.ID, Patterns: []string{w.Name}}
}

// Contract: locks one row by primary key. Repeating it counts another attempt.
const putOffSweepSQL = `UPDATE cache_outbox_sweeps
SET not_before = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, attempts = attempts + 1, error = ? WHERE id = ?`

// PutOffSweep makes a request wait, with the error that an operator will see.
func (s *Store) PutOffSweep(ctx context.Context, id uint64, after time.Duration, text string) error {
	if err := s.exec(ctx, putOffSweepSQL, after.Microseconds(), errorText(text), id); err != nil {
		return fmt.Errorf("put off sweep %d: %w", id, err)
	}
	return nil
}

func (s *Store) exec(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	_, err := s.side.ExecContext(ctx, query, args...)
	return err
}
