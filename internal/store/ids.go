package store

import (
	"context"
	"fmt"
	"math"
)

// FewIDs is how many IDs a table has left if an insert has chosen one: by themselves, IDs do not reach
// the middle of their range in a thousand years.
const FewIDs = math.MaxUint64/2 + 1

// Contract: no lock on rows; the dictionary, past its cache (see the session's settings). A table that
// never had a row may have no counter yet.
const nextIDSQL = "SELECT COALESCE(MAX(AUTO_INCREMENT), 1) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"

// nextID returns the ID that the next row of a table gets. The greatest one is never given out: the
// table has no ID left.
func (s *Store) nextID(ctx context.Context, table string) (id uint64, err error) {
	err = s.side.GetContext(ctx, &id, nextIDSQL, table)
	return max(id, 1), err
}

// NumberedTables are the tables with IDs that applications, operators and triggers insert into.
var NumberedTables = []string{hot.name, delayed.name, "cache_outbox_dead"}

// IDsLeft returns how many more rows each of NumberedTables can number: at 0 every insert fails. It
// ends within the timeout of one statement.
func (s *Store) IDsLeft(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var st Status
	for _, table := range NumberedTables {
		if err := s.readIDsLeft(ctx, &st, table); err != nil {
			return nil, fmt.Errorf("read the next ID of %s: %w", table, err)
		}
	}
	return st.IDsLeft, nil
}

// readIDsLeft adds a table to Status.IDsLeft.
func (s *Store) readIDsLeft(ctx context.Context, st *Status, table string) error {
	next, err := s.nextID(ctx, table)
	if err != nil {
		return err
	}
	if st.IDsLeft == nil {
		st.IDsLeft = map[string]uint64{}
	}
	st.IDsLeft[table] = math.MaxUint64 - next
	return nil
}
