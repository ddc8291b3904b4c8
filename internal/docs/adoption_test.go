package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// testAdoption follows the README's smallest adoption, in a place that has the program and nothing else: its map, its commands
// and its SQL make the keys of its map go.
func testAdoption(t *testing.T, program string) {
	const page = "README.md"
	shop, cache := testenv.MySQL(t), testenv.Redis(t)
	shopTables(t, shop.DB)
	options, err := redis.ParseURL(cache.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	keys := []string{"shop:product:42", "shop:product:42:reviews", "shop:coupon:SUMMER10"}
	for _, key := range keys {
		if err := client.Set(t.Context(), key, "old", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}

	place := t.TempDir()
	if err := os.Mkdir(filepath.Join(place, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(place, "bin", "unstale")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place, "mapping.yaml"), []byte(onlyBlock(t, page, "yaml", "version: 1").text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(bare(), "MYSQL_DSN="+shop.DSN, "REDIS_URL="+cache.URL, "UNSTALE_LISTEN=127.0.0.1:0")
	command := func(part string) *exec.Cmd {
		lines := strings.Split(strings.TrimSpace(onlyBlock(t, page, "sh", part).text), "\n")
		words := strings.Fields(lines[len(lines)-1]) // the exports above it are env
		cmd := exec.Command(filepath.Join(place, words[0]), words[1:]...)
		cmd.Dir, cmd.Env = place, env
		return cmd
	}
	if out, err := command("migrate up").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w := launch(t, command("unstale run"))
	for _, b := range blocks(t, page, "sql") {
		run(t, shop.DB, statements(b)...)
	}
	w.until("the product's keys are gone", func() bool { return client.Exists(t.Context(), keys[:2]...).Val() == 0 })
	want(t, shop.DB, "SELECT price_cents FROM products", "4490")
	run(t, shop.DB, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('coupon', 'SUMMER10')")
	w.until("the coupon's key is gone", func() bool { return client.Exists(t.Context(), keys...).Val() == 0 })
	w.stop()
}

// What pages show of Go stands word for word in examples, which a test compiles and runs.
func TestGo(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var compiled strings.Builder
	for _, file := range files {
		compiled.WriteString(read(t, "examples/"+filepath.Base(file)))
	}
	shown := map[string]int{}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page, "go") {
			shown[page]++
			if !strings.Contains(compiled.String(), "\n"+b.text) {
				t.Errorf("%s:%d: no file of examples has this", b.page, b.line)
			}
		}
	}
	if shown["README.md"] == 0 || shown[adoptingPage] < 4 {
		t.Errorf("blocks of Go: %v", shown)
	}
}
