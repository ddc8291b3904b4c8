package store_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
)

// At the limit is not beyond it, and the columns hold it.
func TestEnqueueAtTheLimits(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	inv := outbox.Invalidation{
		Entity: strings.Repeat("é", outbox.MaxEntity), ID: strings.Repeat("😀", outbox.MaxID), Trace: strings.Repeat("ع", outbox.MaxTrace),
		Params: map[string]any{"p": strings.Repeat("x", outbox.MaxParams-len(`{"p":""}`))},
	}
	enqueue(t, env.DB, inv)
	c := claim(t, s, limits)
	if r := c.Rows[0]; r.TruncatedField() != "" || r.EntityID != inv.ID || r.Trace != inv.Trace || len(r.Params) != outbox.MaxParams {
		t.Errorf("claimed %q, %q, %d bytes", r.Entity, r.EntityID, len(r.Params))
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// What a non-strict sql_mode cuts is recognised.
func TestCutIsRecognised(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
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
	c := claim(t, s, limits)
	if got := c.Rows[0].TruncatedField(); got != "entity_id" {
		t.Errorf("cut: %q", got)
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}
