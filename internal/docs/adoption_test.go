package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

const readmePage = "README.md"

// testAdoption follows the README's quick start in a directory that contains only the
// program. The README's map, commands and SQL delete the keys of the map.
func testAdoption(t *testing.T, program string) {
	shop, cache := testenv.MySQL(t), testenv.Redis(t)
	shopTables(t, shop.DB)
	options, err := redis.ParseURL(cache.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	keys := []string{"shop:product:42", "shop:product:42:reviews", "shop:product:43"}
	for _, key := range keys {
		if err := client.Set(t.Context(), key, "old", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := readme{adoptionPlace(t, program), append(bare(), "MYSQL_DSN="+shop.DSN, "REDIS_URL="+cache.URL, "UNSTALE_LISTEN=127.0.0.1:0")}
	r.says(t, "migrate up")
	r.names(t)
	w := launch(t, r.commands(t, "unstale run")[0])
	for _, b := range blocks(t, readmePage, "sql") {
		run(t, shop.DB, statements(b)...)
	}
	w.until("the product's keys are gone", func() bool { return client.Exists(t.Context(), keys[:2]...).Val() == 0 })
	want(t, shop.DB, "SELECT price_cents FROM products", "4490")
	w.until("the row is settled", func() bool { return value(t, shop.DB, "SELECT COUNT(*) FROM cache_outbox") == "0" })
	w.until("status knows of the worker", func() bool {
		return value(t, shop.DB, "SELECT COUNT(*) FROM cache_outbox_workers WHERE state = 'working'") == "1"
	})
	if text := r.says(t, "unstale history"); !strings.HasPrefix(text, "nothing is stale: ") || !strings.Contains(text, "waiting      0") || !strings.Contains(text, "key      "+keys[0]) {
		t.Errorf("status and history say\n%s", text)
	}
	run(t, shop.DB, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '43')")
	w.until("the other product's key is gone", func() bool { return client.Exists(t.Context(), keys...).Val() == 0 })
	w.stop()
}

// adoptionPlace returns a directory with bin/unstale and the README's map.
func adoptionPlace(t *testing.T, program string) (place string) {
	t.Helper()
	place = t.TempDir()
	if err := os.Mkdir(filepath.Join(place, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(place, "bin", "unstale")); err != nil {
		t.Fatal(err)
	}
	text := onlyBlock(t, readmePage, "yaml", "version: 1").text
	if err := os.WriteFile(filepath.Join(place, "shop.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return place
}

// A readme is the directory and the environment for the README's commands.
type readme struct {
	place string
	env   []string
}

// commands returns the commands of the block that contains part, except exports, which the
// environment already has.
func (r readme) commands(t *testing.T, part string) (list []*exec.Cmd) {
	t.Helper()
	for line := range strings.Lines(onlyBlock(t, readmePage, "sh", part).text) {
		words := strings.Fields(line)
		if words[0] == "export" {
			continue
		}
		cmd := exec.Command(filepath.Join(r.place, words[0]), words[1:]...)
		cmd.Dir, cmd.Env = r.place, r.env
		list = append(list, cmd)
	}
	return list
}

// names checks that the generated package has the functions that the README calls.
func (r readme) names(t *testing.T) {
	t.Helper()
	code, err := os.ReadFile(filepath.Join(r.place, "shop", "shop.go"))
	if err != nil {
		t.Fatal(err)
	}
	called := regexp.MustCompile("`.* shop\\.(\\w+)\\(42\\)").FindAllStringSubmatch(read(t, readmePage), -1)
	for _, c := range called {
		if !regexp.MustCompile(`\nfunc ` + c[1] + `\(\w+ int64\) `).Match(code) {
			t.Errorf("the README calls shop.%s, and the package has no such function:\n%s", c[1], code)
		}
	}
	if len(called) != 2 {
		t.Errorf("the README calls %q", called)
	}
}

// says runs the commands of a block to their end and returns their output.
func (r readme) says(t *testing.T, part string) string {
	t.Helper()
	var text strings.Builder
	for _, cmd := range r.commands(t, part) {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
		}
		text.Write(out)
	}
	return text.String()
}

// Go code on pages is copied verbatim from examples, or is the program of docs/adopting.md: a test
// compiles and runs both.
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
	compiled.WriteString(read(t, "examples/price/main.go"))
	compiled.WriteString("\n" + onlyBlock(t, adoptingPage, "go", "package main").text)
	shown := map[string]int{}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page, "go") {
			shown[page]++
			if !strings.Contains(compiled.String(), "\n"+b.text) {
				t.Errorf("%s:%d: no file of examples has this", b.page, b.line)
			}
		}
	}
	if shown[adoptingPage] < 4 {
		t.Errorf("blocks of Go: %v", shown)
	}
}
