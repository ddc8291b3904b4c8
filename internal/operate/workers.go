package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// States of a worker, in addition to the states of an outage.
const (
	WorkerWorking  = "working"
	WorkerStarting = "starting" // it has not completed its first batch
	WorkerHealing  = "healing"  // it repeats unlinks that Redis has lost
	WorkerPaused   = "paused"
	WorkerStopped  = "stopped"
)

// Reasons why rows make no progress although a worker works.
const (
	StalledHeld   = "held"   // another session has rows locked
	StalledBehind = "behind" // rows are free, and no worker claims them
)

// The beginnings of the error of a working worker whose accounts lack a privilege that no
// invalidation needs.
const (
	NotCounted = "invalidations are not counted: " // see package minutes
	NotChecked = "spot checks are limited: "       // see package spotcheck
)

// A WorkerNote is the status record of a worker. Its durations are ages, by the worker's clock when
// written and by the database's clock when read. Workers publish its JSON in Redis, with durations
// in nanoseconds.
type WorkerNote struct {
	ID   string `json:"-"`    // random, per process
	Name string `json:"name"` // set when read
	// one of the states above, or the state of an outage
	State string `json:"state"`
	// the outage; for a working worker, what it cannot reach, or NotCounted or NotChecked and why
	Error string        `json:"error,omitempty"`
	For   time.Duration `json:"for"` // how long it has been in the state
	// since its last claim that left no rows to claim; nil: never
	Drained    *time.Duration `json:"drained,omitempty"`
	MapVersion string         `json:"map"`
	// fingerprint of the reads of the map, as readers report it; in Redis only
	Reads string `json:"reads,omitempty"`
	// why the current map file is not in use
	MapError string `json:"map_error,omitempty"`
	// why the next release refuses the map in use
	MapWarning string `json:"map_warning,omitempty"`
	Channel    string `json:"channel"` // where it publishes
	Format     string `json:"format"`  // of its messages
	// Stalled is why rows make no progress although the worker works. StallError names the rows and
	// the fix: see unstale_stalled. Both are empty while rows make progress.
	Stalled    string `json:"stalled,omitempty"`
	StallError string `json:"stall_error,omitempty"`
	// how long it has had heavy rows to process; nil: it has none
	Heavy *time.Duration `json:"heavy,omitempty"`
	// since the record was written; negative if the database's clock was set back meanwhile; set
	// when read
	Silent time.Duration `json:"-"`
}

// silentWorker is how long a worker may write no status record before it counts as gone. It writes
// one every two seconds, and a frozen worker loses its claim after ten.
const silentWorker = 10 * time.Second

// Lives reports whether the worker has not stopped and its record is at most ten seconds old. A
// record from the future was written before the database's clock was set back; a live worker soon
// writes another one.
func (n *WorkerNote) Lives() bool {
	return n.State != WorkerStopped && n.Silent.Abs() <= silentWorker
}

// Works reports whether the worker lives and was not kept from working at its last record.
func (n *WorkerNote) Works() bool { return n.Lives() && n.State == WorkerWorking }

// LacksRight reports whether the error of a working worker begins with NotCounted or NotChecked.
func (n *WorkerNote) LacksRight() bool {
	return strings.HasPrefix(n.Error, NotCounted) || strings.HasPrefix(n.Error, NotChecked)
}

// Contract: one row by primary key; a lock for one statement. Repeating it is harmless.
const noteWorkerSQL = `REPLACE INTO cache_outbox_workers (id, name, state, error, since, drained_at, map_version, map_error, map_warning, channel, format,
stalled, stall_error, heavy_since)
VALUES (?, ?, ?, NULLIF(?, ''), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, NULLIF(?, ''), NULLIF(?, ''), ?, ?,
NULLIF(?, ''), NULLIF(?, ''), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)`

// Workers manages the status records of workers. Safe for concurrent use.
type Workers struct{ db *session.Sessions }

// NewWorkers returns the Workers of an outbox.
func NewWorkers(db *session.Sessions) *Workers { return &Workers{db} }

// NoteWorker writes the status record of this worker. It waits for at most the statement timeout,
// and not at all while an earlier write of these Sessions hangs.
func (w *Workers) NoteWorker(ctx context.Context, n WorkerNote) error {
	ctx, cancel := context.WithTimeout(ctx, w.db.Config.StatementTimeout)
	defer cancel()
	err := w.db.Note(ctx, noteWorkerSQL, n.ID, w.db.Config.Worker, n.State, session.ErrorText(n.Error), n.For.Microseconds(), microseconds(n.Drained),
		n.MapVersion, session.ErrorText(n.MapError), session.ErrorText(n.MapWarning), n.Channel, n.Format,
		n.Stalled, session.ErrorText(n.StallError), microseconds(n.Heavy))
	if err != nil {
		return fmt.Errorf("record the worker's status: %w", err)
	}
	return nil
}

// microseconds returns an age as a parameter: NULL for nil, which makes the time NULL.
func microseconds(age *time.Duration) *int64 {
	if age == nil {
		return nil
	}
	n := age.Microseconds()
	return &n
}

// Contract: reads the table, which has a row for each process of the last day; exclusive locks on
// the rows that it deletes (READ COMMITTED). Repeating it is harmless.
const forgetWorkersSQL = "DELETE FROM cache_outbox_workers WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"

// ForgetWorkers deletes the status records that are older than a day.
func (w *Workers) ForgetWorkers(ctx context.Context) error {
	if err := w.db.Exec(ctx, forgetWorkersSQL); err != nil {
		return fmt.Errorf("delete old worker records: %w", err)
	}
	return nil
}

// maxWorkers is how many workers Status lists.
const maxWorkers = 1000

// Contract: no lock (a consistent read); at most LIMIT rows of the table, which has a row for each
// process of the last day.
const workersSQL = `SELECT id, name, state, COALESCE(error, ''), map_version, COALESCE(map_error, ''), COALESCE(map_warning, ''), channel, format,
TIMESTAMPDIFF(MICROSECOND, since, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)),
TIMESTAMPDIFF(MICROSECOND, drained_at, UTC_TIMESTAMP(6)), COALESCE(stalled, ''), COALESCE(stall_error, ''),
TIMESTAMPDIFF(MICROSECOND, heavy_since, UTC_TIMESTAMP(6))
FROM cache_outbox_workers ORDER BY seen_at DESC, id LIMIT ?`

// workers lists the workers of the last day, the most recent record first.
func (w *Workers) workers(ctx context.Context) (list []WorkerNote, err error) {
	rows, err := w.db.Side.QueryContext(ctx, workersSQL, maxWorkers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var n WorkerNote
		var since, silent int64
		var drained, heavy *int64
		if err := rows.Scan(&n.ID, &n.Name, &n.State, &n.Error, &n.MapVersion, &n.MapError, &n.MapWarning, &n.Channel, &n.Format, &since, &silent, &drained,
			&n.Stalled, &n.StallError, &heavy); err != nil {
			return nil, err
		}
		n.For, n.Silent = micros(since), signedMicros(silent)
		n.Drained, n.Heavy = age(drained), age(heavy)
		list = append(list, n)
	}
	return list, rows.Err()
}

// age returns an age as read, or nil for NULL.
func age(n *int64) *time.Duration {
	if n == nil {
		return nil
	}
	ago := micros(*n)
	return &ago
}

// Workers lists the workers of the last day, the most recent record first, at most a thousand.
func (w *Workers) Workers(ctx context.Context) ([]WorkerNote, error) {
	ctx, cancel := context.WithTimeout(ctx, w.db.Config.StatementTimeout)
	defer cancel()
	list, err := w.workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return list, nil
}
