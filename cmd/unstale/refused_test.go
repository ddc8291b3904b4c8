package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// A Redis that refuses connections, at maxclients or in protected mode, is named by the log,
// /readyz, status and doctor, with the server's words and the fix.
func TestRedisRefusesConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["UNSTALE_LISTEN"] = "127.0.0.1:0"
	set := func(name, value string) {
		t.Helper()
		if err := w.redis.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	type fault struct{ name, value, normal, says, fix string }
	faults := []fault{{"maxclients", "1", "1000", "ERR max number of clients reached", "raise the server's maxclients"}}
	if host := testenv.HostAddress(t); host != "" {
		set("protected-mode", "no")
		set("bind", "127.0.0.1 "+host)
		w.env["REDIS_URL"] = strings.Replace(w.server.URL(), "127.0.0.1", host, 1)
		faults = append(faults, fault{"protected-mode", "yes", "no", "DENIED Redis is running in protected mode", "; set a password for the server's users"})
	} else {
		t.Log("this host has only loopback addresses, which protected mode accepts")
	}
	r := w.start("--worker", "web-1")
	r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	for _, f := range faults {
		set(f.name, f.value)
		if err := w.redis.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		w.enqueue(1)
		names := func(text string) bool { return strings.Contains(text, f.says) && strings.Contains(text, f.fix) }
		r.until(f.name+": the log names it", func() bool { return names(r.log.String()) })
		r.until(f.name+": /readyz names it", func() bool { _, body := r.readyz(); return names(body) })
		r.until(f.name+": status names it", func() bool {
			told := call(t, w.env, "status")
			first, _, _ := strings.Cut(told.out+told.err, "\n")
			return names(first)
		})
		doctor := call(t, w.env, "doctor", "--check", "reach")
		if doctor.code != exitFail || !names(doctor.out) || !strings.Contains(doctor.out, "Redis answers with a refusal") {
			t.Errorf("%s: doctor: %+v", f.name, doctor)
		}
		set(f.name, f.normal)
		r.until(f.name+": it goes on", func() bool { return r.ready() == http.StatusOK && w.count("cache_outbox") == 0 })
	}
}
