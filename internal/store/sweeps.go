package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// Sweeps accesses the table of sweep requests. Safe for concurrent use.
type Sweeps struct {
	db      *session.Sessions
	journal *Journal
}

// NewSweeps returns the Table of an outbox.
func NewSweeps(db *session.Sessions) *Sweeps { return &Sweeps{db, NewJournal(db)} }

// SweepKind is the kind of keys that a Sweep deletes.
type SweepKind string

// The kinds of sweeps.
const (
	SweepPattern SweepKind = "pattern" // every key that matches a glob
	SweepSet     SweepKind = "set"     // every member of an index set, and the set
)

// A Sweep is a request to delete keys that takes longer than a batch can.
type Sweep struct {
	ID          uint64    `db:"id"` // set when read
	Kind        SweepKind `db:"kind"`
	Name        string    `db:"name"`         // the pattern or the set, byte for byte
	RequestedAt time.Time `db:"requested_at"` // set when read; UTC, the database's clock

	// HoldMillis is how long after the request no reader may store a value under the keys that the
	// sweep finds.
	HoldMillis int64 `db:"hold_ms"`
	// FirstLow and FirstHigh are the lowest and highest ID in cache_outbox of the rows that
	// requested the sweep, not counting repeats; 0 if no row did.
	FirstLow  uint64 `db:"first_low"`
	FirstHigh uint64 `db:"first_high"`

	AgeMicros int64 `db:"age"` // set when read: see Age
	// Lease is the longest lease that readers may hold after the request was read. The sweeper sets
	// it.
	Lease time.Duration `db:"-"`
	// set when read: how often Redis has refused it since it last succeeded
	Attempts int    `db:"attempts"`
	Error    string `db:"error"` // set when read: of the last refusal
}

// Hold returns HoldMillis as a Duration.
func (s *Sweep) Hold() time.Duration { return time.Duration(s.HoldMillis) * time.Millisecond }

// Asked records that the row with this ID in cache_outbox requested the sweep. The ID is 0 for a
// row that never was in cache_outbox.
func (s *Sweep) Asked(firstID uint64) {
	if firstID == 0 {
		return
	}
	if s.FirstLow == 0 || firstID < s.FirstLow {
		s.FirstLow = firstID
	}
	s.FirstHigh = max(s.FirstHigh, firstID)
}

// Age returns how old the request was when it was read, by the database's clock.
func (s *Sweep) Age() time.Duration { return time.Duration(s.AgeMicros) * time.Microsecond }

// Contract: appends at most Chunk rows per statement, with at most maxSweepText bytes of names
// unless it is one row; takes no lock that another insert waits for.
const requestSweepSQL = "INSERT INTO cache_outbox_sweeps (kind, name, hold_ms, first_low, first_high) VALUES "

// RequestSweeps requests sweeps that no row requests. Requesting a sweep again runs it again.
func (t *Sweeps) RequestSweeps(ctx context.Context, sweeps []Sweep) error {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	return dberr.Wrap(RequestSweeps(ctx, t.db.Side, sweeps), "request sweeps")
}

// RequestSweeps requests sweeps, in a transaction or outside one.
func RequestSweeps(ctx context.Context, db sqlx.ExecerContext, sweeps []Sweep) error {
	for len(sweeps) > 0 {
		n := sweepsUpTo(sweeps, maxSweepText)
		part := sweeps[:n]
		sweeps = sweeps[n:]
		args := make([]any, 0, 5*len(part))
		for _, s := range part {
			args = append(args, string(s.Kind), []byte(s.Name), s.HoldMillis, s.FirstLow, s.FirstHigh)
		}
		if _, err := db.ExecContext(ctx, requestSweepSQL+tuples("(?,?,?,?,?)", len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

// Contract for both: no lock (a consistent read); at most LIMIT requests that are due, oldest
// first, by the primary key or by the index on kind, whose entries contain the ID. Postponed
// requests are skipped.
const (
	sweepColumns = `SELECT id, kind, name, requested_at, TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) AS age,
attempts, COALESCE(error, '') AS error, hold_ms, first_low, first_high FROM cache_outbox_sweeps `
	sweepsSQL    = sweepColumns + "WHERE not_before <= UTC_TIMESTAMP(6) ORDER BY id LIMIT ?"
	allSweepsSQL = sweepColumns + "ORDER BY id LIMIT ?"
	sweepsOfSQL  = sweepColumns + "FORCE INDEX (kind) WHERE kind = ? AND id > ? AND not_before <= UTC_TIMESTAMP(6) ORDER BY id LIMIT ?"
)

// Sweeps lists up to limit of the oldest requests that are not postponed. It locks nothing.
// Requests made meanwhile are returned by a later call.
func (t *Sweeps) Sweeps(ctx context.Context, limit int) ([]Sweep, error) {
	return t.sweeps(ctx, math.MaxInt, sweepsSQL, limit)
}

// All lists up to limit of the oldest requests, including those that are postponed or wait for
// their second sweep. It locks nothing.
func (t *Sweeps) All(ctx context.Context, limit int) ([]Sweep, error) {
	return t.sweeps(ctx, math.MaxInt, allSweepsSQL, limit)
}

// SweepsOf lists requests as Sweeps does, but only of one kind and with IDs greater than after. The
// names have at most bytes bytes in total, but at least one request is returned.
func (t *Sweeps) SweepsOf(ctx context.Context, kind SweepKind, after uint64, limit, bytes int) ([]Sweep, error) {
	return t.sweeps(ctx, bytes, sweepsOfSQL, string(kind), after, limit)
}

func (t *Sweeps) sweeps(ctx context.Context, bytes int, query string, args ...any) (out []Sweep, err error) {
	defer func() { err = dberr.Wrap(err, "list sweeps") }()
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	rows, err := t.db.Side.QueryxContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var next Sweep
		if err := rows.StructScan(&next); err != nil {
			return nil, err
		}
		if bytes -= len(next.Name); bytes < 0 && len(out) > 0 {
			return out, nil
		}
		out = append(out, next)
	}
	return out, rows.Err()
}

// maxSweepCount is the limit of CountSweeps, so counting takes a fraction of a second.
const maxSweepCount = 1_000_000

// Contract: no lock (a consistent read), at most LIMIT entries of the index on kind.
const countSweepsSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps FORCE INDEX (kind) WHERE kind = ? AND not_before <= UTC_TIMESTAMP(6) LIMIT ?) AS counted"

// CountSweeps counts the requests of a kind that are not postponed, up to a million.
func (t *Sweeps) CountSweeps(ctx context.Context, kind SweepKind) (n int, err error) {
	err = t.db.ReadRow(ctx, &n, countSweepsSQL, string(kind), maxSweepCount)
	return n, dberr.Wrap(err, "count sweeps")
}

// Contract: as RemoveSQL, for cache_outbox_sweeps. Repeating it is harmless.
var finishSweepsSQL = fmt.Sprintf(session.RemoveSQL, "cache_outbox_sweeps")

// Contract: exclusive locks on the rows listed, found by primary key. Repeating it only changes
// swept_at.
const settleSweepsSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_sweeps AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.swept_at = UTC_TIMESTAMP(6), o.not_before = o.requested_at + INTERVAL ? + 1000 * o.hold_ms MICROSECOND,
  o.attempts = 0, o.error = NULL`

// Contract: exclusive locks on the rows changed, found by a scan of the table. A request that Redis
// refused waits for at most a minute. Repeating it is harmless.
const advanceSweepsSQL = `UPDATE cache_outbox_sweeps SET
  not_before = IF(attempts > 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, requested_at, not_before) MICROSECOND),
  requested_at = LEAST(requested_at, UTC_TIMESTAMP(6)), swept_at = LEAST(swept_at, UTC_TIMESTAMP(6))
WHERE requested_at > UTC_TIMESTAMP(6) OR attempts > 0 AND not_before > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE`

// Advance makes requests wait only as long as they were meant to although the database's clock was
// set back, and returns how many it changed. A request from the future counts as made now.
func (t *Sweeps) Advance(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	n, err = session.Affected(t.db.Side.ExecContext(ctx, advanceSweepsSQL))
	return n, dberr.Wrap(err, "advance sweeps")
}

// Swept is the result of requests that were carried out.
type Swept struct {
	Finished []Sweep // these are deleted
	// These are swept a second time, once SettleAfter and their hold time have passed since the
	// request.
	Settling []Sweep

	SettleAfter time.Duration
	Position    Position // position after the last unlink
	MapVersion  string
}

// FinishSweeps deletes or keeps exactly these requests and records in the journal that they were
// carried out. Their rows are settled already, so the journal gets batches without rows, each for
// at most 500 requests or 1 MiB of names. Repeating the call is harmless. After an error, some
// requests may be recorded and others not.
func (t *Sweeps) FinishSweeps(ctx context.Context, swept Swept) error {
	all := slices.Concat(swept.Finished, swept.Settling)
	finished := len(swept.Finished)
	for len(all) > 0 {
		n := sweepsUpTo(all, maxSweepBytes)
		cut := min(n, finished)
		if err := t.noteSwept(ctx, all[:cut], all[cut:n], swept); err != nil {
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

// sweepsUpTo returns how many of the first sweeps have at most most bytes of names: at least 1 and
// at most Chunk.
func sweepsUpTo(sweeps []Sweep, most int) int {
	bytes := 0
	for i, w := range sweeps {
		if bytes += len(w.Name); i == session.Chunk || i > 0 && bytes > most {
			return i
		}
	}
	return len(sweeps)
}

// noteSwept deletes the finished requests, keeps those that are swept again, and records in the
// journal that all were carried out, in one transaction.
func (t *Sweeps) noteSwept(ctx context.Context, finished, settling []Sweep, swept Swept) error {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	entries := make([]JournalEntry, 0, len(finished)+len(settling))
	for _, w := range slices.Concat(finished, settling) {
		entries = append(entries, w.entry())
	}
	tx, err := t.db.Side.BeginTx(ctx, nil)
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
	if err := t.journal.noteBatch(ctx, tx, swept.MapVersion, swept.Position, entries); err != nil {
		return err
	}
	return t.db.Commit(tx)
}

// sweepIDs returns the list parameter of the statements above.
func sweepIDs(sweeps []Sweep) string {
	return jsonText(session.AppendIDs(nil, sweeps, func(w Sweep) uint64 { return w.ID }))
}

func (w *Sweep) entry() JournalEntry {
	if w.Kind == SweepSet {
		return JournalEntry{ID: w.ID, Sets: []string{w.Name}, HoldMillis: w.HoldMillis}
	}
	return JournalEntry{ID: w.ID, Patterns: []string{w.Name}, HoldMillis: w.HoldMillis}
}

// Contract: exclusive locks on the rows listed, found by primary key. Repeating it counts another
// attempt.
const postponeSweepsSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.id', error TEXT PATH '$.error')) AS j
STRAIGHT_JOIN cache_outbox_sweeps AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.not_before = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, o.attempts = o.attempts + 1, o.error = j.error`

// A SweepRefusal is the reason why a request is postponed. It is one element of the list parameter
// of postponeSweepsSQL.
type SweepRefusal struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"` // shown to operators
}

// PostponeSweeps delays requests.
func (t *Sweeps) PostponeSweeps(ctx context.Context, refusals []SweepRefusal, after time.Duration) error {
	for part := range slices.Chunk(slices.Clone(refusals), session.Chunk) {
		for i := range part {
			part[i].Error = session.ErrorText(part[i].Error)
		}
		if err := t.db.Exec(ctx, postponeSweepsSQL, jsonText(part), after.Microseconds()); err != nil {
			return fmt.Errorf("postpone %d sweeps: %w", len(part), err)
		}
	}
	return nil
}

// A SweepFailure is the reason why a worker cannot sweep at all. It does not cover single requests
// that Redis refuses.
type SweepFailure struct {
	Worker string `db:"worker"`
	Error  string `db:"error"`
}

// silentFailure is how long a failure counts as current without being recorded again: longer than
// any pause between two attempts.
const silentFailure = 90 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is
// harmless.
const (
	noteFailureSQL = "REPLACE INTO cache_outbox_sweeper (name, worker, error) VALUES ('failed', ?, ?)"
	overFailureSQL = "DELETE FROM cache_outbox_sweeper WHERE name = 'failed'"
	failureSQL     = `SELECT worker, COALESCE(error, '') AS error FROM cache_outbox_sweeper
WHERE name = 'failed' AND noted_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`
)

// NoteSweepFailure records why sweeps fail as a whole, for Status. Call it again at each failed
// attempt.
func (t *Sweeps) NoteSweepFailure(ctx context.Context, why error) error {
	err := t.db.Exec(ctx, noteFailureSQL, t.db.Config.Worker, session.ErrorText(why.Error()))
	return dberr.Wrap(err, "record the failure of sweeps")
}

// SweepsWork deletes the recorded failure.
func (t *Sweeps) SweepsWork(ctx context.Context) error {
	return dberr.Wrap(t.db.Exec(ctx, overFailureSQL), "delete the recorded failure of sweeps")
}

// SweepFailure returns the recorded failure, or nil if sweeps work.
func (t *Sweeps) SweepFailure(ctx context.Context) (*SweepFailure, error) {
	return session.FindRow[SweepFailure](ctx, t.db, failureSQL, silentFailure.Microseconds())
}

// A SweepLock allows one process at a time to sweep. It is the lock on a row of
// cache_outbox_sweeper, held by a transaction that does nothing else. The server frees the lock as
// soon as the holder's connection is gone, and after ten seconds if the holder is frozen: see
// Check. The transaction has no snapshot (READ COMMITTED), so it does not block purging. Not safe
// for concurrent use.
type SweepLock struct{ tx *sqlx.Tx }

// Contract for all: an exclusive lock on one row by primary key that is never written, or none.
// None of them waits for a lock, except makeSweepLockSQL, which runs only if the row is missing.
const (
	takeSweepLockSQL  = "SELECT worker FROM cache_outbox_sweeper WHERE name = 'lead' FOR UPDATE SKIP LOCKED"
	haveSweepLockSQL  = "SELECT COUNT(*) FROM cache_outbox_sweeper WHERE name = 'lead'"
	makeSweepLockSQL  = "INSERT IGNORE INTO cache_outbox_sweeper (name, worker) VALUES ('lead', '')"
	checkSweepLockSQL = "DO 0"
)

// TrySweepLock acquires the sweep lock, or returns nil if another process holds it.
func (t *Sweeps) TrySweepLock(ctx context.Context) (*SweepLock, error) {
	// The transaction outlives ctx: a sweep lock ends with Release or with the connection.
	tx, err := lockTurn(ctx, context.WithoutCancel(ctx), t.db, takeSweepLockSQL, haveSweepLockSQL, makeSweepLockSQL)
	if tx == nil || err != nil {
		return nil, dberr.Wrap(err, "take the sweep lock")
	}
	return &SweepLock{tx}, nil
}

// lockTurn begins a transaction that has locked the row of one statement, or returns nil if another
// process has it locked. The other statements count the row and insert it if it is missing. The
// transaction is rolled back when life ends.
func lockTurn(ctx, life context.Context, db *session.Sessions, takeSQL, haveSQL, makeSQL string) (*sqlx.Tx, error) {
	tx, err := tryTurn(ctx, life, db, takeSQL)
	if tx != nil || err != nil {
		return tx, err
	}
	// Either another process has the row locked, or it does not exist yet.
	have := 0
	if err := db.ReadRow(ctx, &have, haveSQL); have > 0 || err != nil {
		return nil, err
	}
	if err := db.Exec(ctx, makeSQL); err != nil {
		return nil, err
	}
	return tryTurn(ctx, life, db, takeSQL)
}

func tryTurn(ctx, life context.Context, db *session.Sessions, takeSQL string) (*sqlx.Tx, error) {
	limited, cancel := context.WithTimeout(ctx, db.Config.StatementTimeout)
	defer cancel()
	tx, err := db.Side.BeginTxx(life, nil)
	if err != nil {
		return nil, err
	}
	var row string
	if err := tx.QueryRowContext(limited, takeSQL).Scan(&row); err != nil {
		_ = tx.Rollback() // err has the cause; the server rolls back in any case
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	return tx, nil
}

// Check returns an error if the lock is lost, which happens if its connection is lost. Call it at
// least every 5 s; otherwise the server assumes that the holder is frozen.
func (l *SweepLock) Check(ctx context.Context) error {
	_, err := l.tx.ExecContext(ctx, checkSweepLockSQL)
	return dberr.Wrap(err, "lost the sweep lock")
}

// Release releases the lock. If the server does not respond, closing the connection frees the lock.
func (l *SweepLock) Release() {
	_ = l.tx.Rollback() // the transaction has no writes
}

// A SweepProgress reports how far sweeps of one kind are: one scan of the keyspace for patterns, or
// index sets that are cleared in batches.
type SweepProgress struct {
	Kind     SweepKind `db:"-"`
	Worker   string    `db:"worker"`
	Patterns int       `db:"patterns"` // of a scan for patterns
	Scanned  int64     `db:"scanned"`  // names scanned so far; sets cleared
	// names in the keyspace; sets cleared and sets that wait; 0: unknown
	Total        int64 `db:"total"`
	Unlinked     int64 `db:"unlinked"` // names deleted; members of sets deleted
	ForMicros    int64 `db:"lasted"`   // see For
	SilentMicros int64 `db:"silent"`   // set when read
	Unsure       bool  `db:"unsure"`   // the remaining time is unknown: see Left
}

// row returns the name of the row of a kind.
func (k SweepKind) row() string {
	if k == SweepSet {
		return "sets"
	}
	return "pass"
}

// For returns how long the scan has been running.
func (p *SweepProgress) For() time.Duration { return time.Duration(p.ForMicros) * time.Microsecond }

// firstEstimate is how long a scan must run before its rate is meaningful.
const firstEstimate = 5 * time.Second

// Left returns the remaining time of the scan at its current rate. It returns false if the time is
// unknown: in the first seconds, without a total, while requests keep arriving, and while a large
// set is being cleared.
func (p *SweepProgress) Left() (time.Duration, bool) {
	if p.Unsure || p.Total == 0 || p.Scanned == 0 || p.For() < firstEstimate {
		return 0, false
	}
	left := float64(p.For()) * float64(max(p.Total-p.Scanned, 0)) / float64(p.Scanned)
	return time.Duration(left), true
}

// silentProgress is how long progress counts as current without an update. After that, the process
// counts as dead.
const silentProgress = 15 * time.Second

// Contract for all: at most one row by primary key; a lock for one statement. Repeating them is
// harmless.
const (
	noteProgressSQL = `REPLACE INTO cache_outbox_sweeper (name, worker, began_at, patterns, scanned, total, unlinked, unsure)
VALUES (?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?)`
	endProgressSQL = "DELETE FROM cache_outbox_sweeper WHERE name = ?"
	progressSQL    = `SELECT worker, patterns, scanned, total, unlinked, unsure,
TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) AS lasted, TIMESTAMPDIFF(MICROSECOND, noted_at, UTC_TIMESTAMP(6)) AS silent
FROM cache_outbox_sweeper WHERE name = ?`
)

// NoteProgress records how far sweeps of a kind are, for Status. Only the holder of the sweep lock
// may call it.
func (t *Sweeps) NoteProgress(ctx context.Context, p SweepProgress) error {
	err := t.db.Exec(ctx, noteProgressSQL, p.Kind.row(), t.db.Config.Worker, p.ForMicros, p.Patterns, p.Scanned, p.Total, p.Unlinked, p.Unsure)
	return dberr.Wrap(err, "record the progress of a sweep")
}

// EndProgress records that no sweeps of a kind are running.
func (t *Sweeps) EndProgress(ctx context.Context, kind SweepKind) error {
	return dberr.Wrap(t.db.Exec(ctx, endProgressSQL, kind.row()), "record the end of a sweep")
}

// Progress returns the recorded progress, or nil if no sweeps of the kind are running.
func (t *Sweeps) Progress(ctx context.Context, kind SweepKind) (*SweepProgress, error) {
	p, err := session.FindRow[SweepProgress](ctx, t.db, progressSQL, kind.row())
	if p == nil || time.Duration(p.SilentMicros)*time.Microsecond > silentProgress {
		return nil, err
	}
	p.Kind = kind
	return p, nil
}
