package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/testenv"
)

// The commands on a real server, in the order of the tutorial.
func TestCaptureCommands(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	write := func(section string) {
		t.Helper()
		src := "version: 1\nentities:\n  product: {keys: [\"product:{id}\"]}\n" + section
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN, "UNSTALE_MAP": file}
	want := func(code int, out, err string, args ...string) {
		t.Helper()
		if r := call(t, vars, args...); r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
			t.Errorf("%q: %+v, wanted %d, %q and %q", args, r, code, out, err)
		}
	}
	write("")
	want(exitFail, "", "has no section capture; add one such as", "capture", "diff")
	write("capture:\n  products: {entity: product, id: id, watch: [name], on: [update]}\n")
	want(exitFail, "", file+`:5:3: "products": the database has no table products`, "map", "check", file, "--mysql-dsn", env.DSN)
	if _, err := env.DB.Exec("CREATE TABLE products (id INT PRIMARY KEY, name TEXT)"); err != nil {
		t.Fatal(err)
	}
	want(exitDone, "is good", "", "map", "check", file, "--mysql-dsn", env.DSN)
	want(exitFail, "", "run `unstale migrate up`", "capture", "apply")
	want(exitDone, "applied", "", "migrate", "up")

	want(exitUsage, "", "--definer: ", "capture", "apply", "--definer", "@")
	want(exitFail, "missing  products  AFTER UPDATE  unstale_update_", "1 difference of 1 trigger; 'unstale capture apply' fixes that", "capture", "diff")
	want(exitDone, "\nunstale_capture_differences 1\n", "", "capture", "diff", "--metrics")
	want(exitUsage, "", "--json and --metrics", "capture", "diff", "--metrics", "--json")
	want(exitDone, "missing  products  AFTER UPDATE", "", "capture", "apply", "--dry-run")
	want(exitDone, "no trigger", "", "capture", "status")
	want(exitDone, "created unstale_update_", "", "capture", "apply")
	want(exitDone, "nothing to do: the triggers match the map", "", "capture", "apply")
	want(exitDone, "nothing to do: the triggers match the map", "", "capture", "apply", "--dry-run")
	want(exitFail, "", "does not exist (1449)", "capture", "apply", "--dry-run", "--definer", "nobody@nowhere")
	want(exitDone, "in place  products  AFTER UPDATE", "", "capture", "diff")
	want(exitDone, "\nunstale_capture_differences 0\n", "", "capture", "diff", "--metrics")
	// and no such account
	want(exitDone, "\nunstale_capture_differences 2\n", "", "capture", "diff", "--metrics", "--definer", "nobody@nowhere")
	want(exitDone, `"state": "in place"`, "", "capture", "diff", "--json")
	want(exitFail, "wrong definer  products", "does not exist (1449)", "capture", "diff", "--definer", "nobody@nowhere")
	want(exitDone, "products  AFTER UPDATE  unstale_update_", "", "capture", "status")
	want(exitFail, "", "names the outbox, and would fail every write to its table; run `unstale capture drop`", "migrate", "down", "--force")

	write("capture:\n  products: {entity: product, id: id, watch: [id], on: [update]}\n")
	r := call(t, vars, "capture", "apply", "--json")
	var done triggers
	if err := json.Unmarshal([]byte(r.out), &done); err != nil || r.code != exitDone || len(done.Triggers) != 2 ||
		done.Triggers[0].Create == "" || done.Triggers[1].Name == "" || done.Triggers[1].State != "changed" {
		t.Errorf("%+v, %v", r, err)
	}
	want(exitDone, "would drop unstale_update_", "", "capture", "drop", "--dry-run")
	want(exitFail, "", "others has no such trigger", "capture", "drop", "--table", "others")
	want(exitUsage, "", "--table and --map; give one of them", "capture", "drop", "--table", "products", "--map", file)
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("version: 1\nentities: {product: {keys: [\"shop:product:{id}\"]}}\ncapture:\n  others: {entity: product, id: id}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(exitDone, "nothing to drop", "", "capture", "drop", "--map", other)
	want(exitDone, "would drop unstale_update_", "", "capture", "drop", "--map", file, "--dry-run")
	want(exitDone, "dropped unstale_update_", "", "capture", "drop", "--map", file)
	want(exitDone, "took back", "", "migrate", "down")
}

// An account that does not see all triggers takes no migration back, not even with --force, since a
// hidden trigger may need the outbox.
func TestMigrateDownSeesTriggers(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	c, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c.User, c.Passwd = env.Name, "secret"
	account := "'" + env.Name + "'@'%'"
	exec := func(statement string) {
		t.Helper()
		if _, err := env.DB.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE USER " + account + " IDENTIFIED BY 'secret'")
	t.Cleanup(func() { _, _ = env.DB.Exec("DROP USER " + account) })
	exec("GRANT CREATE, ALTER, INDEX, DROP, SELECT, INSERT, DELETE ON " + env.Name + ".* TO " + account)
	vars := map[string]string{"MYSQL_DSN": c.FormatDSN()}
	want := func(code int, out, err string, args ...string) {
		t.Helper()
		if r := call(t, vars, args...); r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
			t.Errorf("%q: %+v, wanted %d, %q and %q", args, r, code, out, err)
		}
	}
	want(exitDone, "applied", "", "migrate", "up")
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nentities:\n  product: {keys: [\"product:{id}\"]}\ncapture:\n  products: {entity: product, id: id}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exec("CREATE TABLE products (id INT PRIMARY KEY, name TEXT)")
	root := map[string]string{"MYSQL_DSN": env.DSN, "UNSTALE_MAP": file}
	if r := call(t, root, "capture", "apply"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	hidden := "does not see all triggers, and a hidden one may need the outbox; GRANT TRIGGER ON `" + env.Name + "`.* to it\n"
	want(exitFail, "", hidden, "migrate", "down")
	want(exitFail, "", hidden, "migrate", "down", "--force")
	exec("INSERT INTO products VALUES (1, 'x')") // captured
	exec("GRANT TRIGGER ON " + env.Name + ".* TO " + account)
	want(exitFail, "", "names the outbox, and would fail every write to its table", "migrate", "down", "--force")
	if r := call(t, root, "capture", "drop"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	exec("DELETE FROM cache_outbox")
	want(exitDone, "took back", "", "migrate", "down")
}

// The output of "capture sql" creates the triggers that "capture apply" would create.
func TestCaptureSQL(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nentities:\n  product: {keys: [\"product:{id}\"]}\ncapture:\n  products: {entity: product, id: \"CONCAT('$$', {row}.id)\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"MYSQL_DSN": env.DSN, "UNSTALE_MAP": file}
	if _, err := env.DB.Exec("CREATE TABLE products (id INT PRIMARY KEY, name TEXT)"); err != nil {
		t.Fatal(err)
	}
	if r := call(t, vars, "migrate", "up"); r.code != exitDone {
		t.Fatal(r)
	}
	r := call(t, vars, "capture", "sql", "--json")
	var list struct {
		SQLMode    string   `json:"sql_mode"`
		Statements []string `json:"statements"`
	}
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Statements) != 3 || list.SQLMode != capture.SQLMode {
		t.Fatalf("%+v, %v", r, err)
	}
	script := call(t, vars, "capture", "sql")
	head, body, _ := strings.Cut(script.out, "DELIMITER $$$\n")
	body, _, _ = strings.Cut(body, "DELIMITER ;")
	conn, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range append(strings.Split(head, ";\n"), strings.Split(body, "$$$\n")...) {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if r := call(t, vars, "capture", "diff"); r.code != exitDone || strings.Count(r.out, "in place") != 3 {
		t.Errorf("%+v", r)
	}
}
