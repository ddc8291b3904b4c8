package docs

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

const adoptingPage = "docs/adopting.md"

// shopMain calls the code that docs/adopting.md shows for database/sql and sqlx.
const shopMain = `package main

import (
	"context"
	"log"
	"os"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

func main() {
	ctx := context.Background()
	db := sqlx.MustOpen("mysql", os.Getenv("MYSQL_DSN"))
	defer db.Close()
	tx := db.MustBegin()
	for _, err := range []error{
		setPriceSqlx(ctx, tx, 42, 4890),
		tx.Commit(),
		changePrice(ctx, db.DB, 42, 4490),
		moveProduct(ctx, db.DB, 42, 7, 9),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
}
`

// The code in docs/adopting.md compiles outside this module, and its transactions leave the rows
// that the page shows. So do its SQL examples.
func TestLibraryExample(t *testing.T) {
	t.Parallel()
	shop := testenv.MySQL(t)
	schematest.Up(t, shop.DB)
	shopTables(t, shop.DB)
	program := outside(t, map[string]string{"main.go": shopMain, "databasesql.go": "", "sqlx.go": "", "shopcache/shopcache.go": ""})
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = testenv.Environ("MYSQL_DSN=" + shop.DSN)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const read = `SELECT GROUP_CONCAT(CONCAT_WS(' ', entity, entity_id, params) ORDER BY id SEPARATOR '; ') FROM cache_outbox`
	want(t, shop.DB, read, `product 42; product 42; product 42 {"category_id":[7,9]}`)
	want(t, shop.DB, "SELECT price_cents FROM products", "4490")
	want(t, shop.DB, "SELECT category_id FROM product_categories", "9")

	run(t, shop.DB, "DELETE FROM cache_outbox", "UPDATE product_categories SET category_id = 7")
	for _, b := range blocks(t, adoptingPage, "sql") {
		run(t, shop.DB, statements(b)...)
	}
	want(t, shop.DB, read, `product 42 {"category_id": [7, 9]}`)
	want(t, shop.DB, "SELECT category_id FROM product_categories", "9")
	want(t, shop.DB, "SELECT CONCAT_WS(' ', entity, entity_id, due_at > UTC_TIMESTAMP()) FROM cache_outbox_delayed", "coupon SUMMER 1")
}

// outside builds a program as its author would: in a separate module, next to the checkout, with
// the page's commands. A file without text is copied from examples. The build fetches modules that
// a new machine does not have, so they need not be among the checksums and modules of this module.
// The versions are the ones in this go.mod: a release of another module never decides the outcome
// of this test.
func outside(t *testing.T, files map[string]string) (program string) {
	t.Helper()
	dir := t.TempDir()
	shop := filepath.Join(dir, "shop")
	if err := os.MkdirAll(filepath.Join(shop, "shopcache"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(checkout(t), filepath.Join(dir, "unstale")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if text == "" {
			own := strings.NewReplacer("package examples", "package main", "github.com/unstale/unstale/examples/", "example.com/shop/")
			text = own.Replace(read(t, "examples/"+name))
		}
		if err := os.WriteFile(filepath.Join(shop, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := []string{"go mod init example.com/shop"}
	for _, module := range []string{
		"github.com/go-sql-driver/mysql", "github.com/jmoiron/sqlx", "github.com/prometheus/client_golang", "github.com/redis/go-redis/v9",
	} {
		commands = append(commands, "go mod edit -require "+module+"@"+version(t, module))
	}
	for command := range strings.Lines(onlyBlock(t, adoptingPage, "sh", "-replace").text) {
		commands = append(commands, command)
	}
	program = filepath.Join(dir, "program")
	for _, command := range append(commands, "go build -o "+program+" .") {
		args := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = shop
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.TrimSpace(command), err, out)
		}
	}
	return program
}

// version returns the version of a module in this module's go.mod.
func version(t testing.TB, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module)
	cmd.Dir = checkout(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("version of %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
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

// want compares the single value that a query returns.
func want(t testing.TB, db *sql.DB, query, wanted string) {
	t.Helper()
	if got := value(t, db, query); got != wanted {
		t.Errorf("%s:\ngot  %s\nwant %s", strings.TrimSpace(query), got, wanted)
	}
}
