package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// ExpandTexts asks the rules of Enqueue for the entity and the ID, and then the map, with its lookups.
// params is a JSON object, or nil. The error is the reason why the map refuses the row, or that of
// a lookup.
func ExpandTexts(ctx context.Context, s *session.Sessions, m *invalidation.Map, entity, id string, params *string) (plan invalidation.Plan, row invalidation.Row, err error) {
	var raw []byte
	if params != nil {
		raw = []byte(*params)
	}
	// its rules for parameters are stricter than a worker's
	inv := outbox.Invalidation{Entity: entity, ID: id}
	if err := inv.Validate(); err != nil {
		// the index of this invalidation
		if field := (*outbox.FieldError)(nil); errors.As(err, &field) {
			err = fmt.Errorf("%s: %s", field.Field, field.Problem)
		}
		return plan, row, err
	}
	if limit := m.Limits().ParamsBytes; len(raw) > limit {
		return plan, row, fmt.Errorf("params_too_large: %d bytes, limits.params is %d", len(raw), limit)
	}
	decoded, err := invalidation.ParseParams(raw)
	if err != nil {
		return plan, row, err
	}
	row = invalidation.Row{Entity: entity, ID: id, Params: decoded}
	plan, err = worker.Expand(ctx, m, session.NewLookups(s).Lookup, row)
	return plan, row, err
}
