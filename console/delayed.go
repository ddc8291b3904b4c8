package console

import (
	"context"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

// A rowList is the first rows of a table.
type rowList[Row any] struct {
	Rows  []Row
	Total int // up to store.MaxExactCount + 1
}

// More returns how many rows are not listed, as text, or "".
func (l rowList[Row]) More() string {
	switch {
	case l.Total <= len(l.Rows):
		return ""
	case l.Total > store.MaxExactCount:
		return upTo(l.Total)
	}
	return output.Count(l.Total - len(l.Rows))
}

// delayedSource reads the delayed rows that are due first.
func (c *Console) delayedSource() *source {
	return c.reads(listEvery, func(ctx context.Context) (any, error) {
		rows, total, err := store.NewOrders(c.db).DelayedRows(ctx, store.DelayedQuery{}, shownRows)
		if err != nil {
			return nil, err
		}
		return rowList[store.DelayedRow]{rows, total}, nil
	})
}
