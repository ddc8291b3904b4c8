package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// Actions of operators, as the audit records them.
const (
	ActionRetry       = "dead retry"
	ActionCorrect     = "dead retry --set"
	ActionDiscard     = "dead discard"
	ActionPause       = "pause"
	ActionResume      = "resume"
	ActionReplay      = "replay"      // a replay begins
	ActionReplayEnded = "replay over" // it ends, even with an error
	ActionInvalidate  = "invalidate"
	ActionDelayed     = "delayed retry"
)

// Actions lists all actions.
func Actions() []string {
	return []string{ActionRetry, ActionCorrect, ActionDiscard, ActionPause, ActionResume, ActionReplay, ActionReplayEnded, ActionInvalidate, ActionDelayed}
}

// An AuditRecord is one action of an operator.
type AuditRecord struct {
	ID      uint64    `db:"id"`      // chosen by the server; not sorted
	At      time.Time `db:"at"`      // UTC, the database's clock
	Account string    `db:"account"` // user@host of the database, set by the server
	// user@host of the operating system, as the program claims
	ClaimedBy string `db:"claimed_by"`
	Action    string `db:"action"`
	Arguments string `db:"arguments"` // a JSON object
	Rows      uint64 `db:"row_count"` // number of rows that the action changed
}

// An AuditRightError reports that an action was not done because the account may not write its
// audit record.
type AuditRightError struct{ Err error }

// Error implements error.
func (e *AuditRightError) Error() string {
	return fmt.Sprintf("nothing was done, since it could not be written to the audit: %v; GRANT INSERT (%s) ON cache_outbox_audit to this account",
		e.Err, session.AuditColumns)
}

// Unwrap returns the server's error.
func (e *AuditRightError) Unwrap() error { return e.Err }

// Contract: inserts one row, in the action's own transaction; no lock that another insert waits
// for. The ID, the account and the time are column defaults. Repeating it records another action.
const auditSQL = "INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES (?, ?, ?, ?)"

// audit records an action in its transaction.
func (o *Orders) audit(ctx context.Context, tx sqlx.ExecerContext, action string, arguments any, rows int) error {
	text, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	_, err = tx.ExecContext(ctx, auditSQL, claimed(o.operator), action, string(text), rows)
	switch number := mysqlerr.Number(err); {
	case err == nil:
		return nil
	case number == mysqlerr.NoRight || number == mysqlerr.NoColumnRight:
		return &AuditRightError{err}
	}
	return fmt.Errorf("write the audit: %w", err)
}

// maxClaim is the width of the column for a claimed name, in characters.
const maxClaim = 255

// claimed returns an operator's claimed name, cut to fit the column.
func claimed(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	for utf8.RuneCountInString(name) > maxClaim {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// An AuditQuery selects the records that match every field. Empty fields match all.
type AuditQuery struct {
	Action string        // [ActionRetry] chooses [ActionCorrect] too
	Since  time.Duration // by the database's clock
}

// Contract for both: no lock (consistent reads); the index on the time, from its end, of a table
// that grows only by operators' actions: at most LIMIT records, or MaxExactCount+1 to count.
const (
	auditFilter   = "(? = '' OR action IN (?, ?)) AND (? = 0 OR at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)"
	listAuditSQL  = "SELECT id, at, account, claimed_by, action, arguments, row_count FROM cache_outbox_audit WHERE " + auditFilter + " ORDER BY at DESC, id DESC LIMIT ?"
	countAuditSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_audit WHERE " + auditFilter + " LIMIT ?) AS counted"
)

func (q AuditQuery) args(limit int) []any {
	since := q.Since.Microseconds()
	also := q.Action
	if also == ActionRetry {
		also = ActionCorrect
	}
	return []any{q.Action, q.Action, also, since, since, limit}
}

// Audit lists the newest records that match q, at most limit, newest first, and counts the matches.
// A total of MaxExactCount+1 means "more".
func (o *Orders) Audit(ctx context.Context, q AuditQuery, limit int) (list []AuditRecord, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	if err = o.db.Side.SelectContext(ctx, &list, listAuditSQL, q.args(limit)...); err == nil {
		err = o.db.Side.GetContext(ctx, &total, countAuditSQL, q.args(MaxExactCount+1)...)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list the audit: %w", err)
	}
	return list, total, nil
}

// audited performs an action in a transaction and records it there. do returns the number of rows
// that it changed, or -1 if the action changed nothing; then nothing is recorded.
func (o *Orders) audited(ctx context.Context, action string, arguments any, do func(tx *sqlx.Tx) (rows int, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	tx, err := o.db.Side.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	rows, err := do(tx)
	if err != nil || rows < 0 {
		return err
	}
	if err := o.audit(ctx, tx, action, arguments, rows); err != nil {
		return err
	}
	return tx.Commit()
}
