package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/dberr"
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
	NotCounted = "invalidations are not counted: " // see Minutes
	NotChecked = "spot checks are limited: "       // see package maintenance
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
	MapVersion string         `json:"map" db:"map_version"`
	// fingerprint of the reads of the map, as readers report it; in Redis only
	Reads string `json:"reads,omitempty"`
	// why the current map file is not in use
	MapError string `json:"map_error,omitempty" db:"map_error"`
	// why the next release refuses the map in use
	MapWarning string `json:"map_warning,omitempty" db:"map_warning"`
	Channel    string `json:"channel"` // of its map
	Format     string `json:"format"`  // of its messages there
	// where it publishes; for a worker of before migration 30, the channel of its map, when read
	Channels []Channel `json:"channels,omitempty"`
	// Stalled is why rows make no progress although the worker works. StallError names the rows and
	// the fix: see unstale_stalled. Both are empty while rows make progress.
	Stalled    string `json:"stalled,omitempty"`
	StallError string `json:"stall_error,omitempty" db:"stall_error"`
	// how long it has had heavy rows to process; nil: it has none
	Heavy *time.Duration `json:"heavy,omitempty"`
	// Lease is the longest lease that a reader may hold, according to the worker, and Announced how
	// long readers have found a lease of the worker; zero: not yet. Both are only written.
	Lease     time.Duration `json:"-"`
	Announced time.Duration `json:"-"`
	// since the record was written; negative if the database's clock was set back meanwhile; set
	// when read
	Silent time.Duration `json:"-"`
}

// A Channel is a channel that a worker publishes on, and the format of its messages there.
type Channel struct {
	Name    string `json:"name"`
	Format  string `json:"format"`
	Adopted bool   `json:"adopted,omitempty"` // from the map of another worker
	Left    bool   `json:"left,omitempty"`    // which is gone, so this worker will leave it soon
}

// Is reports whether both are one channel in one format.
func (c Channel) Is(other Channel) bool { return c.Name == other.Name && c.Format == other.Format }

// silentWorker is how long a worker may write no status record before it counts as gone. It writes
// one every two seconds, and a frozen worker loses its claim after ten.
const silentWorker = 10 * time.Second

// Lives reports whether the worker has not stopped and its record is at most ten seconds old. A
// record from the future was written before the database's clock was set back; a live worker soon
// writes another one.
func (n *WorkerNote) Lives() bool {
	return n.State != WorkerStopped && n.Silent.Abs() <= silentWorker
}

// Works reports whether the worker lives and was not kept from working at its last record. One that
// heals also processes new rows.
func (n *WorkerNote) Works() bool {
	return n.Lives() && (n.State == WorkerWorking || n.State == WorkerHealing)
}

// LacksRight reports whether the error of a working worker begins with NotCounted or NotChecked.
func (n *WorkerNote) LacksRight() bool {
	return strings.HasPrefix(n.Error, NotCounted) || strings.HasPrefix(n.Error, NotChecked)
}

// Contract: one row by primary key; a lock for one statement. Repeating it is harmless.
const noteWorkerSQL = `REPLACE INTO cache_outbox_workers (id, name, state, error, since, drained_at, map_version, map_error, map_warning, channel, format,
stalled, stall_error, heavy_since, lease_ms, announced_at, channels)
VALUES (?, ?, ?, NULLIF(?, ''), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, NULLIF(?, ''), NULLIF(?, ''), ?, ?,
NULLIF(?, ''), NULLIF(?, ''), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6) - INTERVAL NULLIF(?, 0) MICROSECOND, ?)`

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
		n.Stalled, session.ErrorText(n.StallError), microseconds(n.Heavy), n.Lease.Milliseconds(), n.Announced.Microseconds(), jsonText(n.Channels))
	return dberr.Wrap(err, "record the worker's status")
}

// microseconds returns an age as a parameter: NULL for nil, which makes the time NULL.
func microseconds(age *time.Duration) *int64 {
	if age == nil {
		return nil
	}
	return new(age.Microseconds())
}

// Contract: reads the table, which has a row for each process of the last day; exclusive locks on
// the rows that it deletes (READ COMMITTED). Repeating it is harmless.
const forgetWorkersSQL = `DELETE FROM cache_outbox_workers WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY
AND (SELECT * FROM (SELECT MIN(announced_at) FROM cache_outbox_workers WHERE seen_at >= UTC_TIMESTAMP(6) - INTERVAL 1 DAY) AS younger)
  < UTC_TIMESTAMP(6) - INTERVAL 61 MINUTE`

// ForgetWorkers deletes the status records that are older than a day, once a later worker has
// announced its lease for longer than any lease lasts: until then LongestLease needs them.
func (w *Workers) ForgetWorkers(ctx context.Context) error {
	return dberr.Wrap(w.db.Exec(ctx, forgetWorkersSQL), "delete old worker records")
}

// Contract: no lock (a consistent read); reads the table, and again for each record of a longer
// lease. A record counts until, after it, another worker has announced its own lease for as long as
// the longer one lasts, plus the grace. A record without a lease has the lease of another record of
// the same map, or the given one.
const longestLeaseSQL = `SELECT COALESCE(MAX(a.lease_ms), 0) FROM (
  SELECT w.seen_at, COALESCE(w.lease_ms, (SELECT MAX(o.lease_ms) FROM cache_outbox_workers AS o WHERE o.map_version = w.map_version), ?) AS lease_ms
  FROM cache_outbox_workers AS w) AS a
WHERE a.lease_ms > ? AND NOT EXISTS (SELECT 1 FROM cache_outbox_workers AS b WHERE b.seen_at > a.seen_at
  AND GREATEST(b.announced_at, a.seen_at) + INTERVAL 1000 * a.lease_ms + ? MICROSECOND < b.seen_at)`

// recordGrace is how long after its last record a worker may announce its lease. It writes a record
// every two seconds.
const recordGrace = 5 * time.Second

// unknownLease is assumed for workers of an earlier release, which record no lease. It is the
// default of a map, and of readers.
const unknownLease = 10 * time.Second

// LongestLease returns the longest lease that a reader may hold, according to the records of
// workers, or least if that is longer. If MySQL refuses to read them, it assumes unknownLease.
func (w *Workers) LongestLease(ctx context.Context, least time.Duration) (time.Duration, error) {
	longest := unknownLease.Milliseconds()
	err := w.db.ReadRow(ctx, &longest, longestLeaseSQL, longest, least.Milliseconds(), recordGrace.Microseconds())
	if err != nil && !session.IsRefusal(err) {
		return 0, fmt.Errorf("read the longest lease: %w", err)
	}
	return max(least, time.Duration(longest)*time.Millisecond), nil
}

// maxWorkers is how many workers Status lists.
const maxWorkers = 1000

// Contract: no lock (a consistent read); at most LIMIT rows of the table, which has a row for each
// process of the last day.
const workersSQL = `SELECT id, name, state, COALESCE(error, '') AS error, map_version, COALESCE(map_error, '') AS map_error, COALESCE(map_warning, '') AS map_warning,
channel, format, TIMESTAMPDIFF(MICROSECOND, since, UTC_TIMESTAMP(6)) AS since_us, TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)) AS silent_us,
TIMESTAMPDIFF(MICROSECOND, drained_at, UTC_TIMESTAMP(6)) AS drained_us, COALESCE(stalled, '') AS stalled, COALESCE(stall_error, '') AS stall_error,
TIMESTAMPDIFF(MICROSECOND, heavy_since, UTC_TIMESTAMP(6)) AS heavy_us, COALESCE(channels, '[]') AS packed
FROM cache_outbox_workers ORDER BY seen_at DESC, id LIMIT ?`

// workers lists the workers of the last day, the most recent record first.
func (w *Workers) workers(ctx context.Context) (list []WorkerNote, err error) {
	var rows []struct {
		WorkerNote
		Since       int64  `db:"since_us"`
		SilentSince int64  `db:"silent_us"`
		DrainedAt   *int64 `db:"drained_us"`
		HeavySince  *int64 `db:"heavy_us"`
		Packed      []byte // Channels
	}
	err = w.db.ReadRows(ctx, &rows, workersSQL, maxWorkers)
	for _, r := range rows {
		n := r.WorkerNote
		if json.Unmarshal(r.Packed, &n.Channels) != nil || len(n.Channels) == 0 {
			n.Channels = []Channel{{Name: n.Channel, Format: n.Format}}
		}
		n.For, n.Silent = micros(r.Since), signedMicros(r.SilentSince)
		n.Drained, n.Heavy = age(r.DrainedAt), age(r.HeavySince)
		list = append(list, n)
	}
	return list, err
}

// age returns an age as read, or nil for NULL.
func age(n *int64) *time.Duration {
	if n == nil {
		return nil
	}
	return new(micros(*n))
}

// Workers lists the workers of the last day, the most recent record first, at most a thousand.
func (w *Workers) Workers(ctx context.Context) ([]WorkerNote, error) {
	list, err := w.workers(ctx)
	return list, dberr.Wrap(err, "list workers")
}
