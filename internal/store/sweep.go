package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
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

	// HoldMillis is for how long nothing is to be stored under what the sweep finds, from the request on.
	HoldMillis int64 `db:"hold_ms"`
	// FirstLow and FirstHigh are the least and the greatest id in cache_outbox of the rows that asked, repeats left out;
	// 0 where none did.
	FirstLow  uint64 `db:"first_low"`
	FirstHigh uint64 `db:"first_high"`

	AgeMicros int64  `db:"age"`      // set when read: see Age
	Attempts  int    `db:"attempts"` // set when read: how often Redis has refused it since it was last carried out
	Error     string `db:"error"`    // set when read: of the last refusal
}

// Hold is HoldMillis.
func (s *Sweep) Hold() time.Duration { return time.Duration(s.HoldMillis) * time.Millisecond }

// Asked notes that the row with an id in cache_outbox asked for the sweep, 0 for one that never was there.
func (s *Sweep) Asked(firstID uint64) {
	if firstID == 0 {
		return
	}
	if s.FirstLow == 0 || firstID < s.FirstLow {
		s.FirstLow = firstID
	}
	s.FirstHigh = max(s.FirstHigh, firstID)
}

// Age is how old the request was when it was read, by the database's clock.
func (s *Sweep) Age() time.Duration { return time.Duration(s.AgeMicros) * time.Microsecond }

// Contract: appends at most settleChunk rows a statement, and maxSweepText bytes of names or one row; no lock that another
// insert waits for.
const requestSweepSQL = "INSERT INTO cache_outbox_sweeps (kind, name, hold_ms, first_low, first_high) VALUES "

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
	for len(sweeps) > 0 {
		n := sweepsUpTo(sweeps, maxSweepText)
		part := sweeps[:n]
		sweeps = sweeps[n:]
		args := make([]any, 0, 5*len(part))
		for _, s := range part {
			args = append(args, string(s.Kind), []byte(s.Name), s.HoldMillis, s.FirstLow, s.FirstHigh)
		}
		query := requestSweepSQL + strings.Repeat("(?,?,?,?,?),", len(part)-1) + "(?,?,?,?,?)"
		if _, err := db.ExecContext(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// Contract for both: no lock (a consistent read); at most LIMIT requests that are due, oldest first, by the primary key
// or the index on kind, whose entries carry the id; what is postponed is passed over.
const (
	sweepColumns = `SELECT id, kind, name, requested_at, TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) AS age,
attempts, COALESCE(error, '') AS error, hold_ms, first_low, first_high FROM cache_outbox_sweeps `
	sweepsSQL   = sweepColumns + "WHERE not_before <= UTC_TIMESTAMP(6) ORDER BY id LIMIT ?"
	sweepsOfSQL = sweepColumns + "FORCE INDEX (kind) WHERE kind = ? AND id > ? AND not_before <= UTC_TIMESTAMP(6) ORDER BY id LIMIT ?"
)

// Sweeps lists the oldest requests that are not postponed, at most limit. It locks nothing: what is requested meanwhile
// comes next.
func (s *Store) Sweeps(ctx context.Context, limit int) ([]Sweep, error) {
	return s.sweeps(ctx, math.MaxInt, sweepsSQL, limit)
}

// SweepsOf is Sweeps of one kind, with ids beyond after. Their names have at most that many bytes together, but one
// request is always returned.
func (s *Store) SweepsOf(ctx context.Context, kind SweepKind, after uint64, limit, bytes int) ([]Sweep, error) {
	return s.sweeps(ctx, bytes, sweepsOfSQL, string(kind), after, limit)
}

func (s *Store) sweeps(ctx context.Context, bytes int, query string, args ...any) (out []Sweep, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	rows, err := s.side.QueryxContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var next Sweep
		if err := rows.StructScan(&next); err != nil {
			return nil, fmt.Errorf("list sweeps: %w", err)
		}
		if bytes -= len(next.Name); bytes < 0 && len(out) > 0 {
			return out, nil
		}
		out = append(out, next)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list sweeps: %w", err)
	}
	return out, nil
}

// maxSweepCount is how far CountSweeps counts, so that it takes a fraction of a second.
const maxSweepCount = 1_000_000

// Contract: no lock (a consistent read), at most LIMIT entries of the index on kind.
const countSweepsSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (kind) WHERE kind = ? AND not_before <= UTC_TIMESTAMP(6) LIMIT ?) AS counted"

// CountSweeps counts the requests of a kind that are not postponed, up to a million.
func (s *Store) CountSweeps(ctx context.Context, kind SweepKind) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.side.GetContext(ctx, &n, countSweepsSQL, string(kind), maxSweepCount); err != nil {
		return 0, fmt.Errorf("count sweeps: %w", err)
	}
	return n, nil
}

// Contract: as removeSQL, for cache_outbox_sweeps. Repeating it is harmless.
var finishSweepsSQL = fmt.Sprintf(removeSQL, "cache_outbox_sweeps")

// Contract: exclusive locks on the rows listed, found by primary key. Repeating it changes swept_at alone.
const settleSweepsSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_sweeps AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.swept_at = UTC_TIMESTAMP(6), o.not_before = o.requested_at + INTERVAL ? + 1000 * o.hold_ms MICROSECOND,
  o.attempts = 0, o.error = NULL`

// Swept says what comes of requests that were carried out.
type Swept struct {
	Finished []Sweep // these are deleted
	Settling []Sweep // these come again, when SettleAfter and their hold have passed since their request

	SettleAfter time.Duration
	Position    Position // after which all was unlinked
	MapVersion  string
}

// FinishSweeps deletes or keeps exactly these requests and notes in the journal that they were carried out: a batch of
// no rows for every 500 of them or 1 MiB of their names, since their rows have been settled. Repeating it is harmless;
// after an error some may be noted and others not.
func (s *Store) FinishSweeps(ctx context.Context, swept Swept) error {
	all := slices.Concat(swept.Finished, swept.Settling)
	finished := len(swept.Finished)
	for len(all) > 0 {
		n := sweepsUpTo(all, maxSweepBytes)
		cut := min(n, finished)
		if err := s.noteSwept(ctx, all[:cut], all[cut:n], swept); err != nil {
			return fmt.Errorf("finish sweeps: %w", err)
		}
		all, finished = all[n:], finished-cut
	}
	return nil
}

const (
	maxSweepBytes = 1 << 20   // of the names of one batch of the journal
	maxSweepText  = 256 << 10 // of the names of one statement that requests sweeps
)

// sweepsUpTo is how many of the first sweeps have so many bytes of names: at most settleChunk, and one at least.
func sweepsUpTo(sweeps []Sweep, most int) int {
	bytes := 0
	for i, w := range sweeps {
		if bytes += len(w.Name); i == settleChunk || i > 0 && bytes > most {
			return i
		}
	}
	return len(sweeps)
}

// noteSwept deletes some requests and keeps others, and notes in the journal that they were carried out: all of it or
// nothing.
func (s *Store) noteSwept(ctx context.Context, finished, settling []Sweep, swept Swept) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	entries := make([]Entry, 0, len(finished)+len(settling))
	for _, w := range slices.Concat(finished, settling) {
		entries = append(entries, w.entry())
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
	if len(finished) > 0 {
		if _, err := tx.ExecContext(ctx, finishSweepsSQL, sweepIDs(finished)); err != nil {
			return err
		}
	}
	if len(settling) > 0 {
		if _, err := tx.ExecContext(ctx, settleSweepsSQL, sweepIDs(settling), swept.SettleAfter.Microseconds()); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, journalSQL, s.record(0, swept.MapVersion, swept.Position, 0, nil, body, nil)...); err != nil {
		return err
	}
	return s.commit(tx)
}

// sweepIDs is the list that the statements above take.
func sweepIDs(sweeps []Sweep) string {
	list := []byte{'['}
	for i, w := range sweeps {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendUint(list, w.ID, 10)
	}
	return string(append(list, ']'))
}

func (w *Sweep) entry() Entry {
	if w.Kind == SweepSet {
		return Entry{ID: w.ID, Sets: []string{w.Name}, HoldMillis: w.HoldMillis}
	}
	return Entry{ID: w.ID, Patterns: []string{w.Name}, HoldMillis: w.HoldMillis}
}

// Contract: exclusive locks on the rows listed, found by primary key. Repeating it counts another attempt.
const postponeSweepsSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.id', error TEXT PATH '$.error')) AS j
STRAIGHT_JOIN cache_outbox_sweeps AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.not_before = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, o.attempts = o.attempts + 1, o.error = j.error`

// A SweepRefusal says why a request is postponed.
type SweepRefusal struct {
	ID    uint64
	Error string // that an operator will see
}

// PostponeSweeps makes requests wait.
func (s *Store) PostponeSweeps(ctx context.Context, refusals []SweepRefusal, after time.Duration) error {
	for part := range slices.Chunk(refusals, settleChunk) {
		list := make([]disposal, len(part))
		for i, r := range part {
			list[i] = disposal{ID: r.ID, Error: errorText(r.Error)}
		}
		text, err := json.Marshal(list)
		if err == nil {
			err = s.exec(ctx, postponeSweepsSQL, string(text), after.Microseconds())
		}
		if err != nil {
			return fmt.Errorf("postpone %d sweeps: %w", len(part), err)
		}
	}
	return nil
}

func (s *Store) exec(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	_, err := s.side.ExecContext(ctx, query, args...)
	return err
}
