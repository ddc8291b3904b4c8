package main

import (
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// A worker that starts on a node that has not joined its cluster yet waits until it has.
func TestWorkerStartsOnAJoiningNode(t *testing.T) {
	t.Parallel()
	nodes := testenv.OwnPrimaries(t)
	leave, join, reason := "STOP GROUP_REPLICATION", "START GROUP_REPLICATION", "MySQL is read-only"
	if nodes[1].Flavor() == servers.KindMariaDB {
		// the answers of a node that joins
		leave, join, reason = "SET GLOBAL wsrep_reject_queries = ALL", "SET GLOBAL wsrep_reject_queries = NONE", "a node of a Galera cluster, it has not joined"
	}
	w := newWorld(t)
	w.use(nodes[0])
	joining, err := sql.Open("mysql", nodes[1].DSN("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer joining.Close()
	testenv.Eventually(t, "the tables on the other node", func() bool {
		_, err := joining.ExecContext(t.Context(), "SELECT id FROM cache_outbox_shadow")
		return err == nil
	})
	exec := func(statement string) {
		t.Helper()
		if _, err := joining.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	w.setKeys(3)
	w.enqueue(3)
	exec(leave)
	w.env["MYSQL_DSN"], w.env["UNSTALE_LISTEN"] = nodes[1].DSN("shop"), "127.0.0.1:0"
	r := w.start()
	r.until("it waits", func() bool { return r.log.has(reason) && r.ready() != http.StatusOK })
	if w.keys() != 3 {
		t.Error("it works")
	}
	exec(join)
	r.until("the keys go", func() bool { return w.keys() == 0 && w.count("cache_outbox") == 0 })
}

// Commands that change the schema through two nodes of a cluster at the same time run one at a
// time.
func TestSchemaCommandsOnTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := testenv.OwnPrimaries(t)
	admin, err := sql.Open("mysql", nodes[0].DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, s := range []string{"CREATE DATABASE shop", "CREATE TABLE shop.products (id INT PRIMARY KEY, name TEXT)"} {
		if _, err := admin.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	file := writeFile(t, "version: 1\nentities:\n  product: {keys: [\"product:{id}\"]}\ncapture:\n  products: {entity: product, id: id}\n")
	vars := func(node int) map[string]string {
		return map[string]string{"MYSQL_DSN": nodes[node].DSN("shop"), "UNSTALE_MAP": file}
	}
	done := func(node int, args ...string) {
		t.Helper()
		if r := call(t, vars(node), args...); r.code != exitDone {
			t.Fatalf("%q: %+v", args, r)
		}
	}
	both := func(first, second []string) (a, b *running) {
		a, b = begin(t, vars(0), first...), begin(t, vars(1), second...)
		a.end()
		b.end()
		return a, b
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := admin.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	testenv.Eventually(t, "the database to exist on the other node", func() bool { return call(t, vars(1), "migrate", "status").code == exitDone })
	done(1, "migrate", "up")
	if r := call(t, vars(0), "doctor", "--check", "mysql-settings"); !strings.Contains(r.out, "other servers take writes too") {
		t.Errorf("%+v", r)
	}
	apply, up := []string{"capture", "apply"}, []string{"migrate", "up"}
	for range 3 {
		a, b := both(apply, apply)
		a.wantExit(exitDone)
		b.wantExit(exitDone)
		if n := count("SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 'shop'"); n != 3 {
			t.Errorf("%d triggers", n)
		}
		done(0, "capture", "diff")
		done(1, "capture", "drop")
		done(0, "migrate", "down", "--force")
		a, b = both(up, apply)
		a.wantExit(exitDone)
		if b.cmd.ProcessState.ExitCode() != exitDone && !b.log.has("run `unstale migrate up`") {
			t.Error("the triggers were not applied beside a migration")
		}
		if n := count("SELECT COUNT(*) - COUNT(DISTINCT version_id) FROM shop.cache_outbox_version"); n != 0 {
			t.Errorf("%d versions were written twice", n)
		}
		if t.Failed() {
			t.Fatalf("node 0:\n%s\nnode 1:\n%s", a.log, b.log)
		}
		done(1, "capture", "drop")
	}
}
