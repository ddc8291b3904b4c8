package session

import (
	"context"
	"database/sql"
	"strings"
)

// Chunk is how many rows one statement writes.
const Chunk = 500

// maxErrorBytes bounds a row's error text; the column holds 65,535.
const maxErrorBytes = 4096

// RemoveSQL deletes rows of a table. Contract: exclusive record locks on the rows listed, which the
// claim holds already, found by primary key; reads no other row. Deletes as many rows as are
// listed. Repeating it deletes nothing.
const RemoveSQL = `DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Affected returns how many rows a statement changed.
func Affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// AppendIDs appends the ID of each item.
func AppendIDs[T any](ids []uint64, items []T, id func(T) uint64) []uint64 {
	for _, item := range items {
		ids = append(ids, id(item))
	}
	return ids
}

// ErrorText returns the start of an error text, cut at a character.
func ErrorText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorBytes], "") + "..."
}

// Exec executes one statement in the side pool, within the statement timeout.
func (s *Sessions) Exec(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.StatementTimeout)
	defer cancel()
	_, err := s.Side.ExecContext(ctx, query, args...)
	return err
}
