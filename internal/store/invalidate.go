package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/outbox"
)

// Invalidate inserts a row for an operator and returns the token of the row. The audit records it.
func (o *Orders) Invalidate(ctx context.Context, inv outbox.Invalidation) (outbox.Token, error) {
	var writes outbox.Writes
	arguments := struct {
		Entity string          `json:"entity"`
		ID     string          `json:"id"`
		Params json.RawMessage `json:"params,omitempty"`
	}{inv.Entity, inv.ID, inv.RawParams}
	err := o.audited(ctx, ActionInvalidate, arguments, func(tx *sqlx.Tx) (int, error) { return 1, writes.Enqueue(ctx, tx, inv) })
	if err != nil {
		return outbox.Token{}, fmt.Errorf("invalidate: %w", err)
	}
	return writes.Committed(), nil
}
