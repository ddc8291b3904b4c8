package store

import (
	"context"
	"fmt"
	"time"
)

// What a worker may be at, beside the state of an outage.
const (
	WorkerWorking  = "working"
	WorkerStarting = "starting" // it has not made its first batch
	WorkerHealing  = "healing"  // it unlinks again what Redis has lost
	WorkerPaused   = "paused"
	WorkerStopped  = "stopped"
)

// A WorkerNote is what a worker says of itself. The durations are ages, by its own clock when noted and by the
// database's when read. Its JSON is what workers publish in Redis, durations in nanoseconds.
type WorkerNote struct {
	ID         string         `json:"-"`                 // random, of the process
	Name       string         `json:"name"`              // set when read
	State      string         `json:"state"`             // one of the above, or the state of an outage
	Error      string         `json:"error,omitempty"`   // of the outage; of a worker that works, what it cannot reach
	For        time.Duration  `json:"for"`               // how long it has been in the state
	Drained    *time.Duration `json:"drained,omitempty"` // since it last found no more rows to claim; nil: never
	MapVersion string         `json:"map"`
	MapError   string         `json:"map_error,omitempty"`   // why the file of the map as it is now is not in use
	MapWarning string         `json:"map_warning,omitempty"` // why the next release refuses the map in use
	Channel    string         `json:"channel"`               // where it publishes
	Format     string         `json:"format"`                // of its messages
	Silent     time.Duration  `json:"-"`                     // since it was noted, below 0 where the database's clock was set back since; set when read
}

// silentWorker is after which silence a worker counts as gone: it notes itself every two seconds, and one that is frozen
// loses its claim after ten.
const silentWorker = 10 * time.Second

// Lives reports whether the worker has not stopped and was heard within ten seconds. A note from the future was left before
// the database's clock was set back: who lives notes itself again.
func (n *WorkerNote) Lives() bool {
	return n.State != WorkerStopped && n.Silent.Abs() <= silentWorker
}

// Works reports whether the worker lives and was not kept from working when it was last heard.
func (n *WorkerNote) Works() bool { return n.Lives() && n.State == WorkerWorking }

// Contract: one row by primary key; a lock for one statement. Repeating it is harmless.
const noteWorkerSQL = `REPLACE INTO cache_outbox_workers (id, name, state, error, since, drained_at, map_version, map_error, map_warning, channel, format)
VALUES (?, ?, ?, NULLIF(?, ''), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, NULLIF(?, ''), NULLIF(?, ''), ?, ?)`

// NoteWorker notes what this worker is at. It waits for at most the statement timeout, and not at all
// while an earlier note of this Store hangs.
func (s *Store) NoteWorker(ctx context.Context, n WorkerNote) error {
	var drained *int64 // NULL makes the time NULL
	if n.Drained != nil {
		micros := n.Drained.Microseconds()
		drained = &micros
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	err := s.status.exec(ctx, noteWorkerSQL, n.ID, s.cfg.Worker, n.State, errorText(n.Error), n.For.Microseconds(), drained,
		n.MapVersion, errorText(n.MapError), errorText(n.MapWarning), n.Channel, n.Format)
	if err != nil {
		return fmt.Errorf("note what the worker is at: %w", err)
	}
	return nil
}

// Contract: reads the table, which has a row for each process of the last day; exclusive locks on those that it deletes
// (READ COMMITTED). Repeating it is harmless.
const forgetWorkersSQL = "DELETE FROM cache_outbox_workers WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"

// ForgetWorkers deletes the notes of workers that nobody has heard of for a day.
func (s *Store) ForgetWorkers(ctx context.Context) error {
	if err := s.exec(ctx, forgetWorkersSQL); err != nil {
		return fmt.Errorf("forget workers: %w", err)
	}
	return nil
}

// maxWorkers is how many workers Status lists.
const maxWorkers = 1000

// Contract: no lock (a consistent read); the table, which has a row for each process of the last day, LIMIT of them.
const workersSQL = `SELECT id, name, state, COALESCE(error, ''), map_version, COALESCE(map_error, ''), COALESCE(map_warning, ''), channel, format,
TIMESTAMPDIFF(MICROSECOND, since, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)),
TIMESTAMPDIFF(MICROSECOND, drained_at, UTC_TIMESTAMP(6))
FROM cache_outbox_workers ORDER BY seen_at DESC, id LIMIT ?`

// workers lists the workers of the last day, the last heard first.
func (s *Store) workers(ctx context.Context) (list []WorkerNote, err error) {
	rows, err := s.side.QueryContext(ctx, workersSQL, maxWorkers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var n WorkerNote
		var since, silent int64
		var drained *int64
		if err := rows.Scan(&n.ID, &n.Name, &n.State, &n.Error, &n.MapVersion, &n.MapError, &n.MapWarning, &n.Channel, &n.Format, &since, &silent, &drained); err != nil {
			return nil, err
		}
		n.For, n.Silent = micros(since), signedMicros(silent)
		if drained != nil {
			ago := micros(*drained)
			n.Drained = &ago
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

// Workers lists the workers of the last day, the last heard first, at most a thousand.
func (s *Store) Workers(ctx context.Context) ([]WorkerNote, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	list, err := s.workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return list, nil
}
