package worker_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A worker works on the schema of a later release that lets it run. Each table has two more
// columns, and there is one more table. The worker writes delayed rows, dead letters, sweeps, the
// journal and its status record as it does on its own schema.
func TestAWorkerOnANewerSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	rows, err := w.db.QueryContext(t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'cache\\_outbox%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		w.exec("ALTER TABLE " + name + " ADD COLUMN later_a INT NULL FIRST, ADD COLUMN later_b VARCHAR(9) NOT NULL DEFAULT 'later'")
	}
	w.exec("CREATE TABLE cache_outbox_later (id INT PRIMARY KEY)")
	w.exec("INSERT INTO "+migrations.VersionTable+" (version_id, is_applied, oldest) VALUES (99, 1, ?)", schema.Version)

	w.set("zahraah:prod:product:1", "zahraah:prod:category:7:list:1")
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "1", Params: map[string]any{"category_id": "7"}},
		outbox.Invalidation{Entity: "product", ID: "2", Params: map[string]any{"category_id": "7"}, NotBefore: time.Now().Add(-time.Second)},
		outbox.Invalidation{Entity: "nothing that the map knows", ID: "3"})
	w.worker(worker.Config{}).start(t)
	testenv.Eventually(t, "all is done and noted", func() bool {
		return w.count("cache_outbox") == 0 && w.count("cache_outbox_dead") == 1 && w.count("cache_outbox_delayed") == 0 &&
			w.count("cache_outbox_journal") > 0 && w.count("cache_outbox_workers WHERE drained_at IS NOT NULL") == 1 &&
			w.count("cache_outbox_sweeps WHERE swept_at IS NULL") == 0 && w.redis.Exists(t.Context(), "zahraah:prod:product:1", "zahraah:prod:category:7:list:1").Val() == 0
	})
}
