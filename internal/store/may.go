package store

import (
	"context"
	"fmt"

	"github.com/unstale/unstale/internal/session"
)

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
		rows, err := db.Side.QueryContext(ctx, "EXPLAIN "+q.sql, q.args...)
		if err == nil {
			err = rows.Close()
		}
		if err != nil {
			return fmt.Errorf("try the privileges of %s: %w", kind, err)
		}
	}
	return nil
}
