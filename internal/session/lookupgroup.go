package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Contract: session settings, no lock, no row.
const (
	setUngroupedSQL = "SET SESSION sql_mode = '" + sqlMode + "'"
	setGroupedSQL   = "SET SESSION sql_mode = '" + lookupMode + "'"
)

// modeLimit bounds the statement that restores the mode.
const modeLimit = time.Second

// lookUpUngrouped runs a lookup that ONLY_FULL_GROUP_BY refuses, as earlier releases did, so an
// upgrade does not stop invalidation. A statement that aggregates all IDs into one row runs for one
// ID at a time.
func (l *Lookups) lookUpUngrouped(ctx context.Context, conn *sql.Conn, query string, by [][]string, values, each int, refusal error) (found [][]string, err error) {
	if _, err := conn.ExecContext(ctx, setUngroupedSQL); err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modeLimit)
		defer cancel()
		if _, err := conn.ExecContext(ctx, setGroupedSQL); err != nil {
			// closes the session, whose mode is unknown
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	most := len(by)
	if mysqlerr.Number(refusal) == mysqlerr.MixedGroups {
		most = 1
	}
	for ; len(by) > 0; by = by[most:] {
		rows, err := l.lookUp(ctx, conn, query, by[:most], values, each)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	l.ungrouped.Store(query, refusal)
	return found, nil
}

// Ungrouped returns the error of a lookup that ONLY_FULL_GROUP_BY refused earlier, or nil.
func (l *Lookups) Ungrouped(query string) error {
	err, _ := l.ungrouped.Load(query)
	refusal, _ := err.(error)
	return refusal
}
