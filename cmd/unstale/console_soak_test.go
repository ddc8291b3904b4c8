//go:build soak

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// Pages that are open with live updates cost MySQL and the worker next to nothing, no matter how
// many they are.
func TestConsoleManyPages(t *testing.T) {
	f := newFrail(t)
	f.do("CREATE USER 'operator'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT ON shop.* TO 'operator'@'%'")
	var version string
	if err := f.admin.QueryRow("SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	statements := "SELECT SUM(count_star) FROM performance_schema.events_statements_summary_by_user_by_event_name WHERE user = 'operator'"
	if strings.Contains(version, "MariaDB") {
		f.do("SET GLOBAL userstat = 1")
		statements = "SELECT select_commands + update_commands + other_commands FROM information_schema.user_statistics WHERE user = 'operator'"
	}
	f.env["UNSTALE_CONSOLE_DSN"] = "operator:secret@tcp(" + f.mysql.Addr() + ")/shop"
	f.env["UNSTALE_CONSOLE_REDIS_URL"] = f.env["REDIS_URL"]
	r, b := f.withBareConsole()
	b.has("sentence", "nothing is stale")
	// cost returns the statements per second of the console, and the share of a core of the worker,
	// while two rows per second are written.
	cost := func() (queries, share float64) {
		count := func() (n float64) {
			if err := f.admin.QueryRow(statements).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		n, cpu, begin := count(), r.cpu(), time.Now()
		for time.Since(begin) < 30*time.Second {
			f.enqueue(1)
			time.Sleep(500 * time.Millisecond)
		}
		took := time.Since(begin).Seconds()
		return (count() - n) / took, (r.cpu() - cpu).Seconds() / took
	}
	_, idle := cost()
	const pages = 200
	var open sync.WaitGroup
	for range pages {
		reply, err := b.http.Get(b.base + "/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reply.Body.Close() })
		open.Go(func() { _, _ = io.Copy(io.Discard, reply.Body) })
	}
	queries, share := cost()
	share -= idle
	t.Logf("%d pages: %.1f statements per second, %.2f %% of a core", pages, queries, 100*share)
	if queries >= 10 || share >= 0.05 {
		t.Error("too much")
	}
	r.signal(syscall.SIGTERM)
	open.Wait() // the worker disconnects all pages
	r.wantExit(exitDone)
}

// cpu is the processor time of a process.
func (r *running) cpu() time.Duration {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// With 100,000 dead letters and ten million rows in the journal, the first page comes within 300
// ms, and so does each panel.
func TestConsoleLarge(t *testing.T) {
	w := newWorld(t)
	w.enqueue(1000)
	w.start("--once").wantExit(exitDone)
	const thousand = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT "
	for i := range 100 {
		for _, statement := range []string{
			"INSERT INTO cache_outbox_dead (id, first_id, entity, entity_id, params, trace, created_at, died_at, attempts, repeated, reason, error, map_version) " +
				thousand + fmt.Sprintf("%d + i, 0, 'thing', i, NULL, 'trace', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 0, 0, IF(i > 990, 'redis_refused', 'unknown_entity'), 'an error', 'v' FROM n", 1000*(i+1)),
			"INSERT INTO cache_outbox_journal (worker, settled_at, row_count, map_version, born_us, journey, hashes, body, epoch, beat) " +
				"SELECT worker, settled_at, row_count, map_version, born_us, journey, hashes, body, epoch, beat FROM cache_outbox_journal ORDER BY id LIMIT 100",
		} {
			if _, err := w.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d rows of the journal", w.count("cache_outbox_journal")*1000)
	_, b := w.withConsole()
	took := func(path string) time.Duration {
		begin := time.Now()
		if code, body := b.get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
		return time.Since(begin)
	}
	if first := took("/"); first > 300*time.Millisecond {
		t.Errorf("the first page took %s", first)
	}
	for _, panel := range []string{"nines", "figures", "charts", "recent", "workers", "dead", "delayed", "audit"} {
		t.Logf("%s: %s", panel, took("/panel/"+panel))
	}
	if _, page := b.get("/search?q=shop:thing:none"); !strings.Contains(page, "Still searching") || !strings.Contains(page, `content="0; url=/search?q=shop%3Athing%3Anone&amp;wait=1"`) {
		t.Error(page)
	}
	t.Logf("search of a journal without summaries: %s", took("/search?wait=1&q=shop:thing:none"))
	time.Sleep(11 * time.Second)
	for _, panel := range []string{"dead", "charts", "delayed", "audit", "recent", "figures"} {
		t.Logf("%s again: %s", panel, took("/panel/"+panel))
	}
}

// While MySQL or Redis is unavailable, the page shows what it cannot know, and it continues when
// they are back.
func TestConsoleOutage(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	_, b := f.withConsole("--worker", "web-1")
	b.has("sentence", "nothing is stale")
	f.toMySQL.Close()
	b.has("sentence", "unknown: read status: ", `data-level="unknown"`)
	b.has("workers", "which workers MySQL knows is unknown: ", "These workers publish their status in Redis.", "web-1")
	b.has("figures", "how many rows wait is unknown: ", "Shown as of ")
	b.has("dead", "which rows are dead letters is unknown: ")
	if code, page := b.get("/"); code != http.StatusOK || !strings.Contains(page, "unknown: read status: ") {
		t.Errorf("%d %s", code, page)
	}
	f.toRedis.Close()
	b.has("workers", "The worker of this process does not work: ")
	f.must(f.toMySQL.Open())
	b.has("sentence", "worker web-1 is kept from working (redis network)")
	f.must(f.toRedis.Open())
	b.has("sentence", "nothing is stale")
	b.has("dead", "No dead letters.")
}

// A table that is locked holds up only the panels that show it.
func TestConsoleSlowTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole()
	for panel, text := range map[string]string{"dead": "No dead letters.", "audit": "No operator has done anything.", "delayed": "No delayed rows."} {
		b.has(panel, text)
	}
	locked, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if _, err := locked.ExecContext(t.Context(), "LOCK TABLES cache_outbox_dead WRITE"); err != nil {
		t.Fatal(err)
	}
	b.has("dead", "which rows are dead letters is unknown: ", "Shown as of ")
	for panel, text := range map[string]string{"recent": "The journal is empty", "audit": "No operator has done anything.", "delayed": "No delayed rows."} {
		if body := b.has(panel, text); strings.Contains(body, "unknown") {
			t.Errorf("%s: %s", panel, body)
		}
	}
	if _, err := locked.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	b.has("dead", "No dead letters.")
}

// Texts of rows and of requests are data: through every field and every kind of search.
func TestConsoleHostileTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["UNSTALE_WORKER"] = "<i>worker</i>"
	_, b := w.withConsole()
	clean := func(what, page string) {
		t.Helper()
		for _, tag := range []string{"<script>", "<img", "<svg/", "<i>", "<b>", "onerror=alert(1)>", "onload=alert(1)>"} {
			if strings.Contains(page, tag) {
				t.Fatalf("%q: the page has %s:\n%s", what, tag, page)
			}
		}
	}
	texts := hostile()
	if len(texts) < 200 {
		t.Fatalf("%d texts", len(texts))
	}
	for i, text := range texts {
		entity := []string{"thing", text}[i%2]
		if _, err := w.db.Exec("INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES (?, ?, JSON_OBJECT('p', ?), ?)", entity, text, text, text); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for _, as := range []string{"", "key", "object", "trace", "row"} {
			code, page := b.get("/search?" + url.Values{"as": {as}, "q": {text}, "entity": {text}, "id": {text}, "params": {text}}.Encode())
			if code != http.StatusOK {
				t.Fatalf("%q: %d %s", text, code, page)
			}
			clean(text, page)
		}
	}
	testenv.Eventually(t, "the rows are processed", func() bool { return w.count("cache_outbox") == 0 })
	b.has("dead", "unknown_entity")
	for _, panel := range []string{"sentence", "nines", "charts", "figures", "recent", "workers", "sweeps", "dead", "delayed", "audit"} {
		_, page := b.get("/panel/" + panel)
		clean(panel, page)
	}
	for _, path := range []string{"/", "/dead"} {
		_, page := b.get(path)
		clean(path, page)
	}
}

// Without the privileges, the page lists what is missing, and no button leads to an action.
func TestConsoleActionsWithoutPrivileges(t *testing.T) {
	t.Parallel()
	f := newFrail(t)
	f.do("CREATE USER 'reader'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT ON shop.* TO 'reader'@'%'")
	dsn := f.env["MYSQL_DSN"]
	f.env["UNSTALE_CONSOLE_DSN"] = strings.Replace(dsn, "unstale:", "reader:", 1)
	_, b := f.withBareConsole("--console-actions")
	id := f.dies("gadget", "1", nil)
	b.has("actions", "Retry dead letters: ", "GRANT INSERT (entity, entity_id, params, trace, created_at, due_at, first_id, repeated) ON cache_outbox_delayed", "Pause all workers: ")
	if body := b.has("dead", "gadget"); strings.Contains(body, "/act/") {
		t.Error(body)
	}
	if reply, page := b.ask(http.MethodGet, "/act/retry?id="+id, nil); reply.StatusCode != http.StatusForbidden || !strings.Contains(page, "GRANT INSERT (") || strings.Contains(page, `name="token"`) {
		t.Errorf("%d %s", reply.StatusCode, page)
	}
	f.do("GRANT INSERT (entity, entity_id, params, trace, created_at, due_at, first_id, repeated) ON shop.cache_outbox_delayed TO 'reader'@'%'",
		"GRANT DELETE ON shop.cache_outbox_dead TO 'reader'@'%'", "GRANT INSERT, DELETE ON shop.cache_outbox_control TO 'reader'@'%'")
	b.has("actions", "Pause all workers: ", "GRANT INSERT (claimed_by, action, arguments, row_count) ON cache_outbox_audit to this account")
	f.do("GRANT INSERT (claimed_by, action, arguments, row_count) ON shop.cache_outbox_audit TO 'reader'@'%'")
	b.has("actions", `<a href="/act/retry">`, `<a href="/act/pause">`, `<a href="/act/replay">`)
	b.does("retry", b.preview("retry", url.Values{"id": {id}}, "Puts back 1 dead letter"), "Retried 1 dead letter.")
	if _, _, account, _ := f.audited(); account != "reader@%" {
		t.Error(account)
	}
	b.preview("replay", url.Values{"all": {"1"}}, "the console has no Redis account; set --console-redis-url")
	f.do("REVOKE SELECT ON shop.* FROM 'reader'@'%'")
	const grant = "GRANT SELECT ON cache_outbox_audit to this account"
	testenv.Eventually(t, "the audit cannot be read", func() bool {
		_, page := b.get("/panel/audit")
		return strings.Count(page, grant) == 1 && !strings.Contains(strings.Replace(page, grant, "", 1), "GRANT")
	})
	f.do("GRANT SELECT ON shop.* TO 'reader'@'%'")
	b.has("actions", `<a href="/act/pause">`)

	f.must(f.mysql.Pause())
	defer func() { f.must(f.mysql.Resume()) }()
	if reply, page := b.ask(http.MethodGet, "/act/pause?for=1h", nil); reply.StatusCode == http.StatusOK || !strings.Contains(page, "MySQL does not answer in time") {
		t.Errorf("%d %s", reply.StatusCode, page)
	}
}

// Texts in the fields of every action are data.
func TestConsoleActionsHostileTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, b := w.withConsole("--console-actions")
	id := w.dies("gadget", "1", nil)
	for _, text := range hostile() {
		if code, page := b.get("/dead?" + url.Values{"id": {text}, "entity": {text}, "map_version": {text}, "reason": {text}, "older_than": {text}, "before": {text}}.Encode()); code != http.StatusOK && code != http.StatusBadRequest {
			t.Fatalf("%q: %d %s", text, code, page)
		}
		in := url.Values{"preview": {"1"}, "reason": {text}, "entity": {text}, "map_version": {text}, "for": {"1h"}, "since": {"1h"}}
		for _, action := range []string{"retry", "discard", "pause", "resume", "replay", "correct"} {
			in.Set("id", text)
			if action == "correct" {
				in = url.Values{"preview": {"1"}, "id": {id}, "set_entity": {text}, "set_params": {text}}
			}
			reply, page := b.ask(http.MethodPost, "/act/"+action, strings.NewReader(in.Encode()), "Content-Type", "application/x-www-form-urlencoded")
			if reply.StatusCode != http.StatusOK {
				t.Fatalf("%s %q: %d %s", action, text, reply.StatusCode, page)
			}
			for _, tag := range []string{"<script>", "<img", "<svg/", "<b>", "onerror=alert(1)>", "onload=alert(1)>"} {
				if strings.Contains(page, tag) {
					t.Fatalf("%s %q: the page has %s:\n%s", action, text, tag, page)
				}
			}
		}
	}
	form := b.preview("pause", url.Values{"for": {"1h"}, "reason": {"'; DROP TABLE cache_outbox; --"}})
	form.Set("name", "<script>alert(1)</script>\r\nSet-Cookie: x=y"+strings.Repeat("é", 300))
	b.does("pause", form, "All workers pause")
	if _, page := b.get("/panel/audit"); strings.Contains(page, "<script>") {
		t.Error(page)
	}
	if n := w.count("cache_outbox_dead"); n != 1 || w.count("cache_outbox_audit") != 1 {
		t.Errorf("%d dead letters", n)
	}
}
