package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// The program of docs/adopting.md compiles outside this module, processes rows, and exits without
// an error on a signal.
func TestEmbeddingExample(t *testing.T) {
	t.Parallel()
	shop, server := testenv.MySQL(t), testenv.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	schematest.Up(t, shop.DB)
	cmd := exec.Command(outside(t, map[string]string{"main.go": onlyBlock(t, adoptingPage, "go", "package main").text}))
	cmd.Dir = t.TempDir()
	text := "version: 1\nentities: {coupon: {keys: [\"coupon:{id}\"]}}\n"
	if err := os.WriteFile(filepath.Join(cmd.Dir, "mapping.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = testenv.Environ("MYSQL_DSN="+shop.DSN, "REDIS_URL="+server.URL(), "LISTEN=127.0.0.1:0")
	if err := client.Set(t.Context(), "coupon:SUMMER", "old", 0).Err(); err != nil {
		t.Fatal(err)
	}
	run(t, shop.DB, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('coupon', 'SUMMER')")
	w := launch(t, cmd)
	w.until("the key is gone", func() bool { return client.Exists(t.Context(), "coupon:SUMMER").Val() == 0 })
	w.stop()
}
