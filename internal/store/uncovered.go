package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// captureArguments are the arguments of [ActionCaptureDrop] and [ActionCaptureApply].
type captureArguments struct {
	Tables []string `json:"tables"`
}

// A CaptureLog records in the audit which tables have triggers.
type CaptureLog struct{ o *Actions }

// NewCaptureLog returns the CaptureLog of a database.
func NewCaptureLog(db *session.Sessions) *CaptureLog { return &CaptureLog{NewActions(db)} }

// Note records that the operator drops the triggers of tables, or created missing ones.
func (l *CaptureLog) Note(ctx context.Context, action string, tables []string) error {
	return l.o.audited(ctx, action, captureArguments{tables}, func(context.Context, *sqlx.Tx) (int, error) { return 0, nil })
}

// An Uncovered is a table whose triggers were missing.
type Uncovered struct {
	Table string    `json:"table"`
	Since time.Time `json:"since"` // UTC, the database's clock; at the earliest
	// by 'capture drop'; else it is the time of the last record with triggers
	Drop bool `json:"drop"`
}

// Contract: no lock (a consistent read); the audit's newest records, by the index on their time.
const lastCapturesSQL = `SELECT at, action, arguments FROM cache_outbox_audit FORCE INDEX (at)
WHERE action IN ('capture drop', 'capture apply') ORDER BY at DESC, id DESC LIMIT 1000`

// Uncovered returns since when, at the earliest, tables have been without triggers. Tables without a
// record are left out.
func (l *CaptureLog) Uncovered(ctx context.Context, tables []string) (list []Uncovered, err error) {
	var records []AuditRecord
	if err := l.o.db.ReadRows(ctx, &records, lastCapturesSQL); err != nil {
		return nil, dberr.Wrap(err, "read the audit")
	}
	last := map[string]Uncovered{}
	for _, r := range slices.Backward(records) { // the newest one last
		var of captureArguments
		_ = json.Unmarshal([]byte(r.Arguments), &of) // one that is written by hand names no table
		for _, table := range of.Tables {
			last[table] = Uncovered{Table: table, Since: r.At, Drop: r.Action == ActionCaptureDrop}
		}
	}
	for _, table := range tables {
		if u, known := last[table]; known {
			list = append(list, u)
		}
	}
	return list, nil
}
