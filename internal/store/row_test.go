package store_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/outbox"
)

// Values at the limit are accepted, and fit the columns.
func TestEnqueueAtTheLimits(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	inv := outbox.Invalidation{
		Entity: strings.Repeat("é", outbox.MaxEntity), ID: strings.Repeat("😀", outbox.MaxID), Trace: strings.Repeat("ع", outbox.MaxTrace),
		Params: map[string]any{"p": strings.Repeat("x", outbox.MaxParams-len(`{"p":""}`))},
	}
	storetest.Enqueue(t, env.DB, inv)
	c := storetest.Claim(t, s, storetest.Limits)
	if r := c.Rows[0]; r.TruncatedField() != "" || r.EntityID != inv.ID || r.Trace != inv.Trace || len(r.Params) != outbox.MaxParams {
		t.Errorf("claimed %q, %q, %d bytes", r.Entity, r.EntityID, len(r.Params))
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// Values that a non-strict sql_mode has cut are detected.
func TestCutIsRecognised(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, stmt := range []string{
		"SET SESSION sql_mode = ''",
		"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', REPEAT('9', 300))",
	} {
		if _, err := conn.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	c := storetest.Claim(t, s, storetest.Limits)
	if got := c.Rows[0].TruncatedField(); got != "entity_id" {
		t.Errorf("cut: %q", got)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}
