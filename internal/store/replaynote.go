package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract for both: at most one row by primary key; a lock for one statement or a short transaction. Repeating them is
// harmless.
const (
	noteReplaySQL = `REPLACE INTO cache_outbox_control (name, who, reason, began_at, ends_at)
VALUES ('replay', ?, ?, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 15 SECOND)`
	endReplaySQL = "DELETE FROM cache_outbox_control WHERE name = 'replay' AND who = ?"
)

// BeginReplay notes for Status and in the audit that the operator replays the journal.
func (s *Store) BeginReplay(ctx context.Context, arguments any) error {
	err := s.audited(ctx, ActionReplay, arguments, func(tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, noteReplaySQL, claimed(s.cfg.Operator), "", 0)
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("note the replay: %w", err)
	}
	return nil
}

// NoteReplay notes for Status for how long and how far the replay is. It counts for 15 s, so that a replay that was killed
// is over by then; note it again before.
func (s *Store) NoteReplay(ctx context.Context, progress string, lasted time.Duration) error {
	if err := s.exec(ctx, noteReplaySQL, claimed(s.cfg.Operator), errorText(progress), lasted.Microseconds()); err != nil {
		return fmt.Errorf("note the replay: %w", err)
	}
	return nil
}

// Contract: no lock (a consistent read); the audit's index on the time, the records of a day at most.
const lastReplaySQL = `SELECT id, at, account, claimed_by, action, arguments, row_count FROM cache_outbox_audit FORCE INDEX (at)
WHERE at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action IN ('replay', 'replay over') ORDER BY at DESC, id DESC LIMIT 1`

// brokenReplay is a replay that began and neither notes itself nor is over, by the audit; nil if there is none, or if the
// account may not read the audit.
func (s *Store) brokenReplay(ctx context.Context) (*AuditRecord, error) {
	var last []AuditRecord
	err := s.side.SelectContext(ctx, &last, lastReplaySQL)
	if mysqlerr.Number(err) == mysqlerr.NoRight {
		return nil, nil
	}
	if err != nil || len(last) == 0 || last[0].Action == ActionReplayEnded {
		return nil, err
	}
	return &last[0], nil
}

// EndReplay notes that it is over, and in the audit what came of it.
func (s *Store) EndReplay(ctx context.Context, result any, rows int) error {
	err := s.audited(ctx, ActionReplayEnded, result, func(tx *sqlx.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, endReplaySQL, claimed(s.cfg.Operator))
		return rows, err
	})
	if err != nil {
		return fmt.Errorf("note the end of the replay: %w", err)
	}
	return nil
}
