package worker_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// Readers with shadow reads and a worker find an UPDATE without a row, and an INSERT that makes a
// negative result wrong. They report neither a write with its row nor an unchanged value.
func TestShadowReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "version: 1\nlease: 1s\npublish: {channel: \"cache:invalidate\"}\nentities:\n  thing: {keys: [\"shop:thing:{id}\"]}\n")
	w.exec("CREATE TABLE things (id INT PRIMARY KEY, name VARCHAR(20))")
	w.exec("INSERT INTO things VALUES (1, 'old'), (2, 'old'), (3, 'old')")
	log := &logBuffer{}
	defer w.runWith(worker.Config{}, w.url, log)()
	source, err := outbox.Source(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	o := *w.redis.Options()
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(&o)
	t.Cleanup(func() { _ = client.Close() })
	c, err := cache.New(cache.Config{
		Redis: client, Prefix: "shop:thing:", Timeout: 5 * time.Second, Lease: time.Second, NotFound: sql.ErrNoRows, Logger: slog.New(slog.DiscardHandler),
		Memory: cache.Memory{Size: 1, Channel: w.channel, Sources: []string{source}}, Shadow: cache.Shadow{Fraction: 1, Rate: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
	policy := cache.MustPolicy(cache.Options{TTL: time.Hour, SkipMemory: true})
	read := func(id int) {
		_, err := cache.Fetch(t.Context(), c, strconv.Itoa(id), func(ctx context.Context) (name string, err error) {
			err = w.db.QueryRowContext(ctx, "SELECT name FROM things WHERE id = ?", id).Scan(&name)
			return name, err
		}, policy)
		if err != nil && id != 4 {
			t.Error(err)
		}
	}
	for id := range 4 {
		read(id + 1)
	}
	w.exec("UPDATE things SET name = 'new' WHERE id = 1")
	w.exec("INSERT INTO things VALUES (4, 'new')")
	err = outbox.InTx(t.Context(), w.db, func(tx *sql.Tx) error {
		if _, err := tx.Exec("UPDATE things SET name = 'new' WHERE id = 2"); err != nil {
			return err
		}
		return outbox.Enqueue(t.Context(), tx, outbox.Invalidation{Entity: "thing", ID: "2"})
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range 4 {
		read(id + 1)
	}
	last := time.Now()
	testenv.Eventually(t, "both findings", func() bool {
		if time.Since(last) > 10*time.Second { // a busy machine may have been silent for too long
			last = time.Now()
			read(1)
			read(4)
		}
		return w.count("cache_outbox_shadow") == 2
	})
	for key, entities := range map[string]string{"shop:thing:1": `["thing"]`, "shop:thing:4": `["thing"]`} {
		if n := w.count("cache_outbox_shadow WHERE outcome = 'no_row' AND cache_key = '" + key + "' AND entities = '" + entities + "'"); n != 1 {
			t.Errorf("%s: %d", key, n)
		}
	}
	testenv.Eventually(t, "the log and the counts", func() bool { // which follow
		return log.count("a cached value differs from the database") == 2 && w.count("cache_outbox_minutes WHERE confirmed > 0") > 0
	})
}
