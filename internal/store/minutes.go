package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// rest is how long a Table counts nothing after MySQL has refused to.
const rest = time.Minute

// Grant is the fix for an account that may not count.
const Grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON cache_outbox_minutes to the worker's account; docs/accounts.md lists the grants"

// AddSQL counts a batch. Contract: an exclusive lock until the transaction ends, on one row by
// primary key, which only this process writes. Its effect ends with the transaction.
const AddSQL = `INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead)
VALUES (UNIX_TIMESTAMP() DIV 60, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE batches = batches + ?, rows_settled = rows_settled + ?, within_100ms = within_100ms + ?,
within_1s = within_1s + ?, within_10s = within_10s + ?, dead = dead + ?`

// A Table is cache_outbox_minutes, as one process writes it. Safe for concurrent use.
type Minutes struct {
	db     *session.Sessions
	worker string

	mu      sync.Mutex
	refusal error
	until   time.Time // no try before
}

// NewMinutes returns the Table of an outbox. The ID identifies the process, as in cache_outbox_workers. A
// process that only reads may leave it empty.
func NewMinutes(db *session.Sessions, worker string) *Minutes {
	return &Minutes{db: db, worker: worker}
}

// Add counts a batch in the transaction that settles it. It never fails a batch for long: if the
// account lacks a privilege, or the table is locked, it counts nothing for a minute, and
// [Table.Refused] returns why. After an error, the transaction must be rolled back.
func (t *Minutes) Add(ctx context.Context, tx *sql.Tx, c Counts) error {
	if c == (Counts{}) || t.rests() {
		return nil
	}
	add := []any{c.Batches, c.Rows, c.Within100ms, c.Within1s, c.Within10s, c.Dead}
	args := append([]any{t.worker}, add...)
	_, err := tx.ExecContext(ctx, AddSQL, append(args, add...)...)
	switch mysqlerr.Number(err) {
	case mysqlerr.NoRight, mysqlerr.NoColumnRight, mysqlerr.NoTable: // before it did anything
		t.refuse(err)
		return nil
	case mysqlerr.LockTimeout: // which has rolled back the transaction, depending on the server
		t.refuse(err)
	}
	if err != nil {
		return fmt.Errorf("count the batch: %w", err)
	}
	t.refuse(nil)
	return nil
}

func (t *Minutes) rests() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.until)
}

func (t *Minutes) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal = err; err != nil {
		t.until = time.Now().Add(rest)
	}
}

// Refused returns why batches are not counted, or nil.
func (t *Minutes) Refused() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusal
}
