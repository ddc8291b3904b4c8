//go:build soak

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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
