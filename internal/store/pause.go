package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// MaxReason is how many bytes the reason of a pause may have.
const MaxReason = 500

// A Pause keeps all workers from claiming rows.
type Pause struct {
	Who     string     `db:"who"`
	Reason  string     `db:"reason"`
	BeganAt time.Time  `db:"began_at"` // UTC, the database's clock; so is EndsAt
	EndsAt  *time.Time `db:"ends_at"`  // nil: it does not end automatically
	// Account is the database account in the audit. Unrecorded reports that the audit has no such
	// record, so the row in cache_outbox_control was written by hand, under any name. Only Status
	// sets them, and only if the account may read the audit.
	Account    string `db:"-"`
	Unrecorded bool   `db:"-"`
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
func (o *Orders) Pause(ctx context.Context, seen *Pause, reason string, lasts time.Duration) error {
	arguments := map[string]any{"reason": session.ErrorText(reason), "for_seconds": lasts.Seconds()}
	err := o.audited(ctx, ActionPause, arguments, func(tx *sqlx.Tx) (int, error) {
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
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
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
func (o *Orders) Paused(ctx context.Context) (*Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	p, err := o.order(ctx, "pause")
	if err != nil {
		return nil, fmt.Errorf("look for a pause: %w", err)
	}
	return p, nil
}

// order returns the current order or notice by this name from cache_outbox_control, or nil.
func (o *Orders) order(ctx context.Context, name string) (*Pause, error) {
	var p Pause
	switch err := o.db.Side.GetContext(ctx, &p, orderSQL, name); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &p, nil
}

// findPauser looks up in the audit which account began a pause. If this account may not read the
// audit, it sets nothing.
func (o *Orders) findPauser(ctx context.Context, p *Pause) error {
	switch err := o.db.Side.GetContext(ctx, &p.Account, pauserSQL, p.BeganAt, p.BeganAt); {
	case errors.Is(err, sql.ErrNoRows):
		p.Unrecorded = true
	case err != nil && mysqlerr.Number(err) != mysqlerr.NoRight:
		return err
	}
	return nil
}

// Resume ends the pause and returns it, or nil if there was none. The pause must equal seen, as for
// Pause. The audit records the ended pause.
func (o *Orders) Resume(ctx context.Context, seen *Pause) (p *Pause, err error) {
	arguments := map[string]any{}
	err = o.audited(ctx, ActionResume, arguments, func(tx *sqlx.Tx) (int, error) {
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
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return p, nil
}
