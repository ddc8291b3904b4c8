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
