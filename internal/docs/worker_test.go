package docs

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// The pages that testWorker follows.
const (
	accountsPage   = "docs/accounts.md"
	metricsPage    = "docs/observability.md"
	operationsPage = "docs/operations.md"
)

// everything uses all features of a map, so the worker needs every privilege that a worker can
// need.
const everything = `version: 1
params:
  category_id:
    lookup: {by: [id], sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}
entities:
  product:
    params: [category_id]
    keys: ["zahraah:product:{id}"]
    patterns: ["zahraah:category:{category_id}:*"]
    sets: ["tag:{id}"]
    tags: ["product-{id}"]
    repeat: [2ms]
    hold: 1ms
reads: {product: {key: "zahraah:product:{product_id}", ttl: 10m}}
`

// testWorker runs the program under the accounts of docs/accounts.md and unstale acl, and no others. It covers
// migrations down and up, an application's rows, a worker that does everything, its metrics,
// summaries of a journal, and dead letters that are retried.
func testWorker(t *testing.T, program string) {
	server, cache := testenv.OwnMySQL(t), testenv.OwnRedis(t)
	as := func(user, password string) string { return dsn(t, server.TCPDSN("shop"), user, password) }
	client := redis.NewClient(&redis.Options{Addr: cache.Addr()})
	defer client.Close()

	admin := testenv.OpenDB(t, server.DSN(""))
	run(t, admin, "CREATE DATABASE shop", "CREATE TABLE shop.product_categories (product_id INT, category_id INT)",
		"INSERT INTO shop.product_categories VALUES (42, 7)", "CREATE USER 'shop'@'%' IDENTIFIED BY 'change me 5'")
	run(t, admin, statements(onlyBlock(t, accountsPage, "sql", "CREATE USER 'unstale_migrate'"))...)
	for _, verb := range []string{"up", "down", "up"} {
		call(t, program, as("unstale_migrate", "change me 1"), "migrate", verb)
	}
	run(t, admin, statements(onlyBlock(t, accountsPage, "sql", "CREATE USER 'unstale'@"))...)
	run(t, admin, statements(onlyBlock(t, accountsPage, "sql", "GRANT SELECT, INSERT, UPDATE ON shop.cache_outbox_locks TO 'shop'@"))...)
	// earlier versions granted these
	run(t, admin, "GRANT INSERT ON shop.cache_outbox TO 'shop'@'%'", "GRANT INSERT ON shop.cache_outbox_delayed TO 'shop'@'%'")
	run(t, admin, statements(onlyBlock(t, accountsPage, "sql", "REVOKE INSERT"))...)

	const four = "(SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS "
	run(t, testenv.OpenDB(t, server.DSN("shop")), "INSERT INTO cache_outbox_journal (worker, row_count, map_version, hashes, body) SELECT 'old', 0, '', '', '' FROM "+
		four+"a, "+four+"b, "+four+"c, "+four+"d, "+four+"e, "+four+"f") // as many as a block has
	w := start(t, program, as("unstale", "change me 2"), "redis://unstale:change-me-3@"+cache.Addr()+"/0")
	w.until("it waits for its Redis account", func() bool { return w.log.has("outage: ") })
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := exec.CommandContext(t.Context(), program, "acl", "worker", "--user", "unstale", "--map", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), append(words(string(line)), ">change-me-3", "~zahraah:member")...).Err(); err != nil {
		t.Fatal(err)
	}
	w.until("it works", func() bool { return w.get("/readyz") == "200 {\"ok\":true}\n" })
	shop := testenv.OpenDB(t, server.DSN("shop"))
	// this account predates the table
	run(t, admin, "REVOKE INSERT ON shop.cache_outbox_workers FROM 'unstale'@'%'")
	w.until("it says that it cannot note what it is at, and works", func() bool {
		return w.log.has("GRANT SELECT, INSERT, DELETE ON cache_outbox_workers") && w.get("/readyz") == "200 {\"ok\":true}\n"
	})
	testInvalidation(t, w, shop, testenv.OpenDB(t, as("shop", "change me 5")), client)
	want(t, shop, "SELECT SUM(rows_settled) > 0 FROM cache_outbox_minutes", "1")
	testMetrics(t, w.get("/metrics"))
	w.until("the journal is summarised", func() bool {
		return value(t, shop, "SELECT COUNT(*) FROM cache_outbox_summaries WHERE bucket = 254") == "1"
	})
	w.stop()

	run(t, admin, statements(onlyBlock(t, accountsPage, "sql", "CREATE USER 'unstale_operator'"))...)
	operator := as("unstale_operator", "change me 4")
	if code, out := exit(t, program, operator, "status"); code != 3 || !strings.HasPrefix(out, "STALE since ") || !strings.Contains(out, "1 dead letter (unknown_entity: 1)") {
		t.Errorf("status: exit code %d\n%s", code, out)
	}
	testHistory(t, program, operator, client, "redis://unstale_operator:change-me-8@"+cache.Addr()+"/0")
	call(t, program, operator, "dead", "list")
	want(t, shop, "SELECT GROUP_CONCAT(reason) FROM cache_outbox_dead", "unknown_entity")
	run(t, shop, statements(onlyBlock(t, operationsPage, "sql", "FROM cache_outbox_sweeps WHERE"))...)
	testAudit(t, auditor{program, operator, "redis://unstale:change-me-3@" + cache.Addr() + "/0", admin, shop})
}

// testHistory runs history under the operators' account in Redis, which may read all keys that
// history reads.
func testHistory(t *testing.T, program, operator string, client *redis.Client, url string) {
	t.Helper()
	if err := client.Do(t.Context(), words(onlyBlock(t, accountsPage, "redis", "ACL SETUSER unstale_operator").text)...).Err(); err != nil {
		t.Fatal(err)
	}
	hears := protocol.Report{Process: "web-1", Epoch: "of no batch", First: 1, Last: 1}
	if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: hears.Fields()}).Err(); err != nil {
		t.Fatal(err)
	}
	code, out := exit(t, program, operator, "history", "--key", "zahraah:product:42", "--redis-url", url)
	if code != 0 || !strings.Contains(out, "row 1  product 42") || !strings.Contains(out, "\nnow: not in Redis\nanswer: Not stale: Redis does not hold this key. It was last unlinked ") || strings.Contains(out, "NOPERM") {
		t.Errorf("history: exit code %d\n%s", code, out)
	}
	if denied := client.Do(t.Context(), "acl", "log").Val(); strings.Contains(fmt.Sprint(denied), "unstale_operator") {
		t.Errorf("%v", denied)
	}
}

// testInvalidation lets an application insert rows, and checks the effects on keys, patterns, sets,
// tags and repeats.
func testInvalidation(t *testing.T, w *process, shop, application *sql.DB, client *redis.Client) {
	t.Helper()
	stale := []string{"zahraah:product:42", "zahraah:category:7:list", "zahraah:member", "stamp:product-42"}
	for _, key := range append(stale, "zahraah:product:421") {
		if err := client.Set(t.Context(), key, "old", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SAdd(t.Context(), "tag:42", "zahraah:member").Err(); err != nil {
		t.Fatal(err)
	}
	run(t, application,
		"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '42'), ('unknown', '1')",
		"INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('product', '43', UTC_TIMESTAMP())")
	for _, statement := range []string{
		"INSERT INTO cache_outbox (id, entity, entity_id) VALUES (18446744073709551614, 'product', '42')",
		"INSERT INTO cache_outbox_delayed (id, entity, entity_id, due_at) VALUES (18446744073709551614, 'product', '43', UTC_TIMESTAMP())",
	} {
		if _, err := application.ExecContext(t.Context(), statement); mysqlerr.Number(err) != mysqlerr.NoColumnRight {
			t.Errorf("%s: %v", statement, err)
		}
	}
	w.until("it listens", func() bool { return client.Publish(t.Context(), "cache:outbox:wake", "").Val() > 0 })
	w.until("it hears", func() bool { return !strings.Contains(w.get("/metrics"), "\nunstale_wakes_total 0\n") })
	const waiting = `SELECT (SELECT COUNT(*) FROM cache_outbox) + (SELECT COUNT(*) FROM cache_outbox_delayed) +
		(SELECT COUNT(*) FROM cache_outbox_sweeps)`
	w.until("all is done", func() bool { // 42 and 43, each with its repeat
		return value(t, shop, waiting) == "0" && value(t, shop, "SELECT SUM(row_count) FROM cache_outbox_journal") == "4"
	})
	if n := client.Exists(t.Context(), append(stale, "tag:42")...).Val(); n != 0 {
		t.Errorf("%d stale keys left", n)
	}
	if client.Exists(t.Context(), "zahraah:product:421").Val() != 1 {
		t.Error("a neighbour is gone")
	}
}

// testMetrics compares the page's table with the metrics that a worker serves.
func testMetrics(t *testing.T, served string) {
	t.Helper()
	got := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (unstale_\w+) (\w+)$`).FindAllStringSubmatch(served, -1) {
		got[match[1]] = match[2]
	}
	for _, row := range table(t, metricsPage, "metric") {
		name, label, labelled := strings.Cut(strings.TrimSuffix(row[0], "}"), "{")
		if got[name] != row[1] {
			t.Errorf("%s has %s as %q, the worker as %q", metricsPage, name, row[1], got[name])
		}
		sample := "\n" + name
		if row[1] == "histogram" {
			sample += "_count"
		}
		if labelled != strings.Contains(served, sample+"{") || labelled && !strings.Contains(served, sample+"{"+label+"=") {
			t.Errorf("%s has %s with the label %q, the worker has not", metricsPage, name, label)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s does not explain %s", metricsPage, name)
	}
}

// exit runs a command and returns its exit code and output.
func exit(t *testing.T, program, dsn string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = testenv.Environ("MYSQL_DSN=" + dsn)
	said, _ := cmd.CombinedOutput() // the exit code is the result
	return cmd.ProcessState.ExitCode(), string(said)
}

// call runs a command and fails the test on an error.
func call(t *testing.T, program, dsn string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = testenv.Environ("MYSQL_DSN=" + dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unstale %q: %v\n%s", args, err, out)
	}
}

// dsn returns base with another account.
func dsn(t *testing.T, base, user, password string) string {
	t.Helper()
	c, err := mysql.ParseDSN(base)
	if err != nil {
		t.Fatal(err)
	}
	c.User, c.Passwd = user, password
	return c.FormatDSN()
}

// value returns the single value that a query returns, or "" for none.
func value(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	var v sql.NullString
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v.String
}

// words splits a Redis command at spaces.
func words(text string) (list []any) {
	for _, word := range strings.Fields(text) {
		list = append(list, word)
	}
	return list
}
