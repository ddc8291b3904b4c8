package verify

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// An error of the database does not end the settler: commits get their due time once it responds
// again.
func TestSettleRepeatsWhatFails(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t).DB
	table, err := newTable(filepath.Join(t.TempDir(), "table"), 1)
	if err != nil {
		t.Fatal(err)
	}
	table.begin(0)
	table.commit(0, now(), 0)
	w := &writers{table: table, db: db}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.settle(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; _ = table.close() })
	failed := func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.failures > 0 }
	testenv.Eventually(t, "an error", failed)
	for _, name := range []string{"cache_outbox", "cache_outbox_sweeps"} {
		if _, err := db.ExecContext(t.Context(), "CREATE TABLE "+name+" (id BIGINT UNSIGNED NOT NULL PRIMARY KEY)"); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the commit to be settled", func() bool {
		open := 0
		table.unsettled(func(*commit) { open++ })
		return open == 0
	})
}
