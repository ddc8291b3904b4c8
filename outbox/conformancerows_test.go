package outbox_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// Which rows Enqueue writes, and the errors of the others. MySQL stores what it accepts unchanged.
func TestConformanceRows(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason   string        `json:"reason"`
			Entity   testenv.Bytes `json:"entity"`
			ID       testenv.Bytes `json:"id"`
			Params   testenv.Bytes `json:"params"`
			Required []string      `json:"required,omitempty"`
			Trace    testenv.Bytes `json:"trace"`
			Field    string        `json:"field,omitempty"`
			Problem  string        `json:"problem,omitempty"`
		} `json:"cases"`
	}
	testenv.Conformance(t, "../protocol/conformance/rows.json", *outbox.Update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			row := outbox.Invalidation{Entity: c.Entity.Text, ID: c.ID.Text, RawParams: json.RawMessage(c.Params.Text), Required: c.Required, Trace: c.Trace.Text}
			var fault *outbox.FieldError
			if c.Field, c.Problem = "", ""; errors.As(row.Validate(), &fault) {
				c.Field, c.Problem = fault.Field, fault.Problem
				continue
			}
			enqueue(t, env.DB, row)
			var entity, id, params, trace string
			testenv.Must(t, env.DB.QueryRowContext(t.Context(), "SELECT entity, entity_id, COALESCE(params, ''), trace FROM cache_outbox ORDER BY id DESC LIMIT 1").
				Scan(&entity, &id, &params, &trace))
			if entity != c.Entity.Text || id != c.ID.Text || params != c.Params.Text || trace != c.Trace.Text {
				t.Errorf("%s: MySQL has %q, %q, %q, %q", c.Reason, entity, id, params, trace)
			}
		}
	})
}
