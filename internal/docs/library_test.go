package docs

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// The README's program compiles outside of this module, with no network, and its transactions leave the rows that the
// README says. So do its SQL examples.
func TestLibraryExample(t *testing.T) {
	t.Parallel()
	shop := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), shop.DB); err != nil {
		t.Fatal(err)
	}
	run(t, shop.DB,
		"CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)",
		"CREATE TABLE product_categories (product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))",
		"CREATE TABLE coupons (code VARCHAR(64) PRIMARY KEY)",
		"INSERT INTO products VALUES (42, 4990)",
		"INSERT INTO product_categories VALUES (42, 7)",
		"INSERT INTO coupons VALUES ('SUMMER10')",
	)
	program := outside(t, onlyBlock(t, "README.md", "go", "package main"))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{"MYSQL_DSN=" + shop.DSN}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const read = `SELECT GROUP_CONCAT(CONCAT_WS(' ', entity, entity_id, params) ORDER BY id SEPARATOR '; ') FROM cache_outbox`
	want(t, shop.DB, read, `product 42; product 42 {"category_id":[7,9]}; coupon SUMMER10`)
	want(t, shop.DB, "SELECT price_cents FROM products", "4490")
	want(t, shop.DB, "SELECT category_id FROM product_categories", "9")
	want(t, shop.DB, "SELECT COUNT(*) FROM coupons", "0")

	run(t, shop.DB, "DELETE FROM cache_outbox", "UPDATE product_categories SET category_id = 7")
	for _, b := range blocks(t, "README.md", "sql") {
		run(t, shop.DB, statements(b)...)
	}
	want(t, shop.DB, read, `product 42 {"category_id": [7, 9]}`)
	want(t, shop.DB, "SELECT category_id FROM product_categories", "9")
	want(t, shop.DB, "SELECT CONCAT_WS(' ', entity, entity_id, due_at > UTC_TIMESTAMP()) FROM cache_outbox_delayed", "coupon SUMMER 1")
}

// outside builds a program in a module of its own that knows this one by a replace directive.
func outside(t *testing.T, source block) (program string) {
	t.Helper()
	dir := t.TempDir()
	mod := "module example.com/shop\n\ngo 1.26\n\nreplace github.com/unstale/unstale => " + checkout(t) + "\n"
	for name, text := range map[string]string{"go.mod": mod, "go.sum": read(t, "go.sum"), "main.go": source.text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "shop")
	for _, args := range [][]string{{"build", "-o", program, "."}, {"vet", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s:%d: go %s: %v\n%s", source.page, source.line, args[0], err, out)
		}
	}
	return program
}

// run executes statements on one connection.
func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// want compares the one value that a query gives.
func want(t testing.TB, db *sql.DB, query, wanted string) {
	t.Helper()
	if got := value(t, db, query); got != wanted {
		t.Errorf("%s:\ngot  %s\nwant %s", strings.TrimSpace(query), got, wanted)
	}
}
