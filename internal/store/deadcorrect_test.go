package store_test

import (
	"errors"
	"testing"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// A letter that has changed since the operator read it is not put back, and nothing is recorded.
func TestCorrectionOfALetterThatChanged(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	const insert = `INSERT INTO cache_outbox_dead (id, entity, entity_id, params, first_id, attempts, reason, error, map_version, created_at)
VALUES (1, 'product', '7', '{"a": 1.10}', 1, 0, 'unknown_entity', '', '', '2026-01-01')`
	if _, err := env.DB.Exec(insert); err != nil {
		t.Fatal(err)
	}
	letters, err := s.Actions.DeadLetters(t.Context(), store.DeadQuery{}, 1)
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	for _, change := range []string{"UPDATE cache_outbox_dead SET params = '{\"a\": 1.1}'", "UPDATE cache_outbox_dead SET params = NULL",
		"UPDATE cache_outbox_dead SET params = '{\"a\": 1.10}', entity_id = '8'", "DELETE FROM cache_outbox_dead"} {
		if _, err := env.DB.Exec(change); err != nil {
			t.Fatal(err)
		}
		if err := s.Actions.RetryCorrected(t.Context(), store.Correction{Letter: letters[0], Entity: "coupon"}); !errors.Is(err, store.ErrLetterChanged) {
			t.Errorf("after %s: %v", change, err)
		}
	}
	var n int
	if err := env.DB.QueryRow("SELECT (SELECT COUNT(*) FROM cache_outbox_audit) + (SELECT COUNT(*) FROM cache_outbox_delayed)").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows and records, %v", n, err)
	}
}
