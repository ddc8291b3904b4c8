package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// Contract for both: at most one row by primary key; a lock for one statement or a short
// transaction. Repeating them is harmless.
const (
	noteReplaySQL = `REPLACE INTO cache_outbox_control (name, who, reason, began_at, ends_at)
VALUES ('replay', ?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 15 SECOND)`
	endReplaySQL = "DELETE FROM cache_outbox_control WHERE name = 'replay' AND who = ?"
)

// BeginReplay records that the operator replays the journal, for Status and in the audit.
func (o *Orders) BeginReplay(ctx context.Context, arguments any) error {
	err := o.audited(ctx, ActionReplay, arguments, func(tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, noteReplaySQL, claimed(o.operator), "", 0)
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("record the replay: %w", err)
	}
	return nil
}

// NoteReplay records how long the replay has run and how far it is, for Status. The record counts
// for 15 s, after which a replay that was killed counts as ended. Call it again before that.
func (o *Orders) NoteReplay(ctx context.Context, progress string, lasted time.Duration) error {
	if err := o.db.Exec(ctx, noteReplaySQL, claimed(o.operator), session.ErrorText(progress), lasted.Microseconds()); err != nil {
		return fmt.Errorf("record the replay: %w", err)
	}
	return nil
}

// Contract: no lock (a consistent read); the audit's index on the time, at most the records of one
// day.
const lastReplaySQL = `SELECT id, at, account, claimed_by, action, arguments, row_count FROM cache_outbox_audit FORCE INDEX (at)
WHERE at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action IN ('replay', 'replay over') ORDER BY at DESC, id DESC LIMIT 1`

// brokenReplay returns a replay that began according to the audit, but is neither running nor
// ended. It returns nil if there is none, or if the account may not read the audit.
func (o *Orders) brokenReplay(ctx context.Context) (*AuditRecord, error) {
	var last []AuditRecord
	err := o.db.Side.SelectContext(ctx, &last, lastReplaySQL)
	if mysqlerr.Number(err) == mysqlerr.NoRight {
		return nil, nil
	}
	if err != nil || len(last) == 0 || last[0].Action == ActionReplayEnded {
		return nil, err
	}
	return &last[0], nil
}

// EndReplay records the end of the replay, and its result in the audit.
func (o *Orders) EndReplay(ctx context.Context, result any, rows int) error {
	err := o.audited(ctx, ActionReplayEnded, result, func(tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, endReplaySQL, claimed(o.operator))
		return rows, err
	})
	if err != nil {
		return fmt.Errorf("record the end of the replay: %w", err)
	}
	return nil
}
