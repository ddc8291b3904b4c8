//go:build soak

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pages that are open with live updates cost MySQL and the worker next to nothing, however many they
// are.
func TestConsoleManyPages(t *testing.T) {
	f := newFrail(t)
	r, b := f.withConsole()
	b.has("sentence", "nothing is stale")
	const pages, window = 200, 30 * time.Second
	idleQueries, idleCPU := f.cost(r, window)
	b.http.Transport.(*http.Transport).MaxIdleConnsPerHost = pages
	var open sync.WaitGroup
	for range pages {
		reply, err := b.http.Get(b.base + "/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reply.Body.Close() })
		open.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := reply.Body.Read(buf); err != nil {
					return
				}
			}
		})
	}
	queries, cpu := f.cost(r, window)
	queries, cpu = queries-idleQueries, cpu-idleCPU
	t.Logf("%d pages: %.1f queries per second, %.2f %% of a core", pages, queries, 100*cpu)
	if queries >= 10 || cpu >= 0.05 {
		t.Error("too much")
	}
}

// cost returns the queries per second of MySQL, and the share of a core of a worker, while one row
// per second is written.
func (f *frail) cost(r *running, window time.Duration) (queries, cpu float64) {
	f.t.Helper()
	q, c := f.questions(), r.cpu()
	begin := time.Now()
	for i := 0; time.Since(begin) < window; i++ {
		f.enqueue(1)
		time.Sleep(time.Second)
	}
	took := time.Since(begin).Seconds()
	return float64(f.questions()-q) / took, (r.cpu() - c).Seconds() / took
}

func (f *frail) questions() (n int) {
	f.t.Helper()
	var name string
	if err := f.admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		f.t.Fatal(err)
	}
	return n
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

// With 100,000 dead letters and ten million rows in the journal, the first page comes within 300 ms,
// and so does each panel.
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
