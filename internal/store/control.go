package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/outbox"
)

// Actions runs the commands of operators, each with its audit record, and the reads that these
// need. Safe for concurrent use.
type Actions struct {
	db       *session.Sessions
	operator string // who takes them, as the program claims; the audit keeps 255 characters
}

// NewActions returns the Actions of an outbox, in the name of the Operator of db.
func NewActions(db *session.Sessions) *Actions { return &Actions{db, db.Config.Operator} }

// As returns Actions in the name of an operator.
func (o *Actions) As(operator string) *Actions { return &Actions{o.db, operator} }

// ErrRepeated reports that an order was given before.
var ErrRepeated = errors.New("this order was given before")

// Contract: one row by primary key, or the rows of orders that are older than an hour, which are
// few, and the last by name: the range ends at no other row that another transaction may have locked.
// Only one of two inserts of a name succeeds; the other waits for it.
const (
	onceSQL   = "INSERT INTO cache_outbox_control (name, who, reason, ends_at) VALUES (CONCAT('run:', ?), ?, '', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)"
	forgetSQL = "DELETE FROM cache_outbox_control WHERE name LIKE 'run:%' AND ends_at < UTC_TIMESTAMP(6)"
)

// Once returns ErrRepeated if it was called with this ID of an order in the last hour, by any
// process. An ID has at most 12 characters; who gives the order.
func Once(ctx context.Context, db *session.Sessions, who, id string) error {
	err := db.Exec(ctx, forgetSQL)
	if err == nil {
		err = db.Exec(ctx, onceSQL, id, claimed(who))
	}
	if mysqlerr.Number(err) == mysqlerr.Duplicate {
		return ErrRepeated
	}
	return err
}

// The kinds of actions that need separate privileges.
const (
	MayDead   = "dead"
	MayPause  = "pause"
	MayReplay = "replay"
)

// Contract for all: EXPLAIN checks the privileges of a statement and does not run it. No lock.
var mayQueries = map[string][]struct {
	sql  string
	args []any
}{
	MayDead:   {{putBackSQL, []any{"[]"}}, {removeDeadSQL, []any{"[]"}}, {onceSQL, []any{"", ""}}, {forgetSQL, nil}, {auditSQL, []any{"", "", "{}", 0}}},
	MayPause:  {{pauseSQL, []any{"", "", 0, 0}}, {resumeSQL, nil}, {auditSQL, []any{"", "", "{}", 0}}}, // also what Once needs
	MayReplay: {{noteReplaySQL, []any{"", "", 0}}, {endReplaySQL, []any{""}}, {auditSQL, []any{"", "", "{}", 0}}},
}

// May returns an error if the account lacks a privilege for actions of a kind. It does not try the
// privileges on the sweeps that a replay needs.
func May(ctx context.Context, db *session.Sessions, kind string) error {
	for _, q := range mayQueries[kind] {
		if err := db.Exec(ctx, "EXPLAIN "+q.sql, q.args...); err != nil {
			return fmt.Errorf("try the privileges of %s: %w", kind, err)
		}
	}
	return nil
}

// MaxReason is how many bytes the reason of a pause may have.
const MaxReason = 500

// A Pause keeps all workers from claiming rows.
type Pause struct {
	Who     string     `db:"who" json:"who"`
	Reason  string     `db:"reason" json:"reason"`
	BeganAt time.Time  `db:"began_at" json:"began_at"` // UTC, the database's clock; so is EndsAt
	EndsAt  *time.Time `db:"ends_at" json:"ends_at"`   // nil: it does not end automatically
	// Account is the database account in the audit. Unrecorded reports that the audit has no such
	// record, so the row in cache_outbox_control was written by hand, under any name. Only Status
	// sets them, and only if the account may read the audit.
	Account    string `db:"-" json:"account"`
	Unrecorded bool   `db:"-" json:"-"`
}

// String describes who paused the workers, since when, until when and why.
func (p *Pause) String() string {
	text := "since " + p.BeganAt.Format(time.RFC3339) + " by " + p.Who
	if p.EndsAt != nil {
		text += ", until " + p.EndsAt.Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// AnyPause, as the pause that a caller has seen, means any pause or none.
var AnyPause = &Pause{}

// ErrPauseChanged reports that the current pause differs from the pause that the caller has seen.
var ErrPauseChanged = errors.New("the pause has changed meanwhile")

// Contract for all: at most one row by primary key; only lockPauseSQL takes a lock. Repeating the
// first begins the pause again, repeating the last does nothing.
const (
	pauseSQL = `REPLACE INTO cache_outbox_control (name, who, reason, began_at, ends_at)
VALUES ('pause', ?, ?, UTC_TIMESTAMP(6), IF(? = 0, NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))`
	orderSQL = `SELECT who, reason, began_at, ends_at FROM cache_outbox_control
WHERE name = ? AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))`
	// It also returns a pause that has ended.
	lockPauseSQL = `SELECT who, reason, began_at, ends_at, ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6) AS is_current
FROM cache_outbox_control WHERE name = 'pause' FOR UPDATE`
	// Uses the audit's index on the time: the records of one minute. No lock (a consistent read).
	pauserSQL = `SELECT account FROM cache_outbox_audit FORCE INDEX (at)
WHERE at BETWEEN ? - INTERVAL 1 SECOND AND ? + INTERVAL 1 MINUTE AND action = 'pause' ORDER BY at DESC LIMIT 1`
	resumeSQL = "DELETE FROM cache_outbox_control WHERE name = 'pause'"
)

// Pause makes all workers stop claiming within about a second, until Resume, or for the duration
// lasts unless it is 0. It replaces the current pause, which must equal seen: nil for none. If it
// does not, it returns ErrPauseChanged. The audit records the pause.
func (o *Actions) Pause(ctx context.Context, seen *Pause, reason string, lasts time.Duration) error {
	arguments := map[string]any{"reason": session.ErrorText(reason), "for_seconds": lasts.Seconds()}
	err := o.audited(ctx, ActionPause, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		_, rows, err := lockPause(ctx, tx, seen)
		if err != nil {
			return 0, err
		}
		n, err := session.Affected(tx.ExecContext(ctx, pauseSQL, claimed(o.operator), session.ErrorText(reason), lasts.Microseconds(), lasts.Microseconds()))
		// A row that did not exist could not be locked: another pause may have come first.
		if err == nil && seen != AnyPause && n != rows+1 {
			err = ErrPauseChanged
		}
		return 1, err
	})
	return dberr.Wrap(err, "pause")
}

// lockPause locks the row of a pause, and returns the current pause or nil, and the number of rows.
// It returns ErrPauseChanged if the pause is not seen.
func lockPause(ctx context.Context, tx *sqlx.Tx, seen *Pause) (now *Pause, rows int64, err error) {
	var found []struct {
		Pause
		Current bool `db:"is_current"`
	}
	if err := tx.SelectContext(ctx, &found, lockPauseSQL); err != nil {
		return nil, 0, err
	}
	if len(found) > 0 && found[0].Current {
		now = &found[0].Pause
	}
	// its time is its identity: each pause begins at another microsecond
	if same := now == seen || now != nil && seen != nil && now.Who == seen.Who && now.BeganAt.Equal(seen.BeganAt); !same && seen != AnyPause {
		return nil, 0, ErrPauseChanged
	}
	return now, int64(len(found)), nil
}

// Paused returns the current pause, or nil.
func (o *Actions) Paused(ctx context.Context) (*Pause, error) {
	p, err := o.order(ctx, "pause")
	return p, dberr.Wrap(err, "look for a pause")
}

// order returns the current order or notice by this name from cache_outbox_control, or nil.
func (o *Actions) order(ctx context.Context, name string) (*Pause, error) {
	return session.FindRow[Pause](ctx, o.db, orderSQL, name)
}

// findPauser looks up in the audit which account began a pause. If this account may not read the
// audit, it sets nothing.
func (o *Actions) findPauser(ctx context.Context, p *Pause) error {
	switch err := o.db.ReadRow(ctx, &p.Account, pauserSQL, p.BeganAt, p.BeganAt); {
	case errors.Is(err, sql.ErrNoRows):
		p.Unrecorded = true
	case err != nil && mysqlerr.Number(err) != mysqlerr.NoRight:
		return err
	}
	return nil
}

// Resume ends the pause and returns it, or nil if there was none. The pause must equal seen, as for
// Pause. The audit records the ended pause.
func (o *Actions) Resume(ctx context.Context, seen *Pause) (p *Pause, err error) {
	arguments := map[string]any{}
	err = o.audited(ctx, ActionResume, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		var rows int64
		if p, rows, err = lockPause(ctx, tx, seen); err != nil || rows == 0 {
			return -1, err
		}
		if p != nil {
			arguments["paused_by"], arguments["since"], arguments["reason"] = p.Who, p.BeganAt, p.Reason
		}
		_, err := tx.ExecContext(ctx, resumeSQL)
		return int(rows), err
	})
	return p, dberr.Wrap(err, "resume")
}

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

	ActionCaptureDrop  = "capture drop"  // triggers of tables; recorded before it is done
	ActionCaptureApply = "capture apply" // created missing triggers of tables
)

// ActionNames returns all actions.
func ActionNames() []string {
	return []string{ActionRetry, ActionCorrect, ActionDiscard, ActionPause, ActionResume, ActionReplay, ActionReplayEnded, ActionInvalidate, ActionDelayed,
		ActionCaptureDrop, ActionCaptureApply}
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
func (o *Actions) audit(ctx context.Context, tx sqlx.ExecerContext, action string, arguments any, rows int) error {
	text, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	_, err = tx.ExecContext(ctx, auditSQL, claimed(o.operator), action, string(text), rows)
	if number := mysqlerr.Number(err); number == mysqlerr.NoRight || number == mysqlerr.NoColumnRight {
		return &AuditRightError{err}
	}
	return dberr.Wrap(err, "write the audit")
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
func (o *Actions) Audit(ctx context.Context, q AuditQuery, limit int) (list []AuditRecord, total int, err error) {
	if err = o.db.ReadRows(ctx, &list, listAuditSQL, q.args(limit)...); err == nil {
		err = o.db.ReadRow(ctx, &total, countAuditSQL, q.args(MaxExactCount+1)...)
	}
	return list, total, dberr.Wrap(err, "list the audit")
}

// audited performs an action in a transaction and records it there. do returns the number of rows
// that it changed, or -1 if the action changed nothing; then nothing is recorded.
func (o *Actions) audited(ctx context.Context, action string, arguments any, do func(context.Context, *sqlx.Tx) (rows int, err error)) error {
	return o.db.InTx(ctx, o.db.Side, func(ctx context.Context, tx *sqlx.Tx) error {
		rows, err := do(ctx, tx)
		if err != nil || rows < 0 {
			return err
		}
		return o.audit(ctx, tx, action, arguments, rows)
	})
}

// Contract for both: at most one row by primary key; a lock for one statement or a short
// transaction. Repeating them is harmless.
const (
	noteReplaySQL = `REPLACE INTO cache_outbox_control (name, who, reason, began_at, ends_at)
VALUES ('replay', ?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 15 SECOND)`
	endReplaySQL = "DELETE FROM cache_outbox_control WHERE name = 'replay' AND who = ?"
)

// BeginReplay records that the operator replays the journal, for Status and in the audit.
func (o *Actions) BeginReplay(ctx context.Context, arguments any) error {
	err := o.audited(ctx, ActionReplay, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, noteReplaySQL, claimed(o.operator), "", 0)
		return 0, err
	})
	return dberr.Wrap(err, "record the replay")
}

// NoteReplay records how long the replay has run and how far it is, for Status. The record counts
// for 15 s, after which a replay that was killed counts as ended. Call it again before that.
func (o *Actions) NoteReplay(ctx context.Context, progress string, lasted time.Duration) error {
	err := o.db.Exec(ctx, noteReplaySQL, claimed(o.operator), session.ErrorText(progress), lasted.Microseconds())
	return dberr.Wrap(err, "record the replay")
}

// Contract: no lock (a consistent read); the audit's index on the time, at most the records of one
// day.
const lastReplaySQL = `SELECT id, at, account, claimed_by, action, arguments, row_count FROM cache_outbox_audit FORCE INDEX (at)
WHERE at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action IN ('replay', 'replay over') ORDER BY at DESC, id DESC LIMIT 1`

// brokenReplay returns a replay that began according to the audit, but is neither running nor
// ended. It returns nil if there is none, or if the account may not read the audit.
func (o *Actions) brokenReplay(ctx context.Context) (*AuditRecord, error) {
	last, err := session.FindRow[AuditRecord](ctx, o.db, lastReplaySQL)
	switch {
	case mysqlerr.Number(err) == mysqlerr.NoRight:
		return nil, nil
	case last != nil && last.Action == ActionReplayEnded:
		return nil, nil
	}
	return last, err
}

// EndReplay records the end of the replay, and its result in the audit.
func (o *Actions) EndReplay(ctx context.Context, result any, rows int) error {
	err := o.audited(ctx, ActionReplayEnded, result, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, endReplaySQL, claimed(o.operator))
		return rows, err
	})
	return dberr.Wrap(err, "record the end of the replay")
}

// Invalidate inserts a row for an operator and returns the token of the row. The audit records it.
func (o *Actions) Invalidate(ctx context.Context, inv outbox.Invalidation) (outbox.Token, error) {
	var writes outbox.Writes
	arguments := struct {
		Entity string          `json:"entity"`
		ID     string          `json:"id"`
		Params json.RawMessage `json:"params,omitempty"`
	}{inv.Entity, inv.ID, inv.RawParams}
	err := o.audited(ctx, ActionInvalidate, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		return 1, writes.Enqueue(ctx, tx, inv)
	})
	if err != nil {
		return outbox.Token{}, fmt.Errorf("invalidate: %w", err)
	}
	return writes.Committed(), nil
}
