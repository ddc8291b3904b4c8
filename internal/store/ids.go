package store

import (
	"context"
	"fmt"
	"math"
)

// FewIDs is the number of IDs left below which an insert must have chosen an ID: numbered
// automatically, IDs do not reach half of their range in a thousand years.
const FewIDs = math.MaxUint64/2 + 1

// NumberedTables are the tables with IDs that applications, operators and triggers insert into.
var NumberedTables = []string{"cache_outbox", "cache_outbox_delayed", "cache_outbox_dead"}

// IDsLeft returns how many more rows each of NumberedTables can number. At 0, every insert fails.
// It ends within the timeout of one statement.
func (o *Overview) IDsLeft(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	var st Status
	for _, table := range NumberedTables {
		if err := o.readIDsLeft(ctx, &st, table); err != nil {
			return nil, fmt.Errorf("read the next ID of %s: %w", table, err)
		}
	}
	return st.IDsLeft, nil
}

// readIDsLeft adds a table to Status.IDsLeft.
func (o *Overview) readIDsLeft(ctx context.Context, st *Status, table string) error {
	next, err := o.db.NextID(ctx, table)
	if err != nil {
		return err
	}
	if st.IDsLeft == nil {
		st.IDsLeft = map[string]uint64{}
	}
	st.IDsLeft[table] = math.MaxUint64 - next
	return nil
}
