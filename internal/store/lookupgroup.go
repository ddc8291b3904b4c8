package store

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

// modeLimit bounds the statement that sets the mode back.
const modeLimit = time.Second

// lookUpUngrouped runs a lookup that ONLY_FULL_GROUP_BY refuses as earlier releases did: an upgrade
// does not stop invalidation. A statement that makes one row of all IDs is asked for one ID at a
// time.
func (s *Store) lookUpUngrouped(ctx context.Context, conn *sql.Conn, query string, by [][]string, values int, refusal error) (found [][]string, err error) {
	if _, err := conn.ExecContext(ctx, setUngroupedSQL); err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), modeLimit)
		defer cancel()
		if _, err := conn.ExecContext(ctx, setGroupedSQL); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closes the session, whose mode is unknown
		}
	}()
	most := len(by)
	if mysqlerr.Number(refusal) == mysqlerr.MixedGroups {
		most = 1
	}
	for ; len(by) > 0; by = by[most:] {
		rows, err := s.lookUp(ctx, conn, query, by[:most], values)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	s.ungrouped.Store(query, refusal)
	return found, nil
}

// Ungrouped returns the error by which ONLY_FULL_GROUP_BY refused a lookup that ran before, or nil.
func (s *Store) Ungrouped(query string) error {
	err, _ := s.ungrouped.Load(query)
	refusal, _ := err.(error)
	return refusal
}
