package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/store"
)

// Sentence 13: a pause keeps all workers, including those that start meanwhile, from claiming; rows
// wait and are processed after it.
func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["UNSTALE_LISTEN"] = "127.0.0.1:0"
	workers := []*running{w.start(), w.start()}
	for _, r := range workers {
		r.until("the worker is ready", func() bool { return r.ready() == http.StatusOK })
	}
	if r := call(t, w.env, "pause", "--reason", "moving redis", "--until-resumed"); r.code != exitDone || r.out != "all workers pause until 'unstale resume'\n" {
		t.Fatalf("%+v", r)
	}
	for _, r := range workers {
		r.until("the worker pauses", func() bool { return r.log.has("paused: rows wait") && r.log.has("moving redis") })
	}
	w.fill(5)
	workers[0].signal(syscall.SIGKILL)
	workers[0].end()
	late := w.start()
	late.until("a worker that starts pauses", func() bool { return late.log.has("paused: rows wait") })
	if got := late.ready(); got != http.StatusOK {
		t.Errorf("/readyz is %d during the pause", got)
	}
	once := w.start("--once")
	once.wantExit(exitFail)
	if !once.log.has("all workers are paused since") {
		t.Errorf("log:\n%s", once.log)
	}
	if rows, keys := w.count("cache_outbox"), w.keys(); rows != 5 || keys != 5 {
		t.Errorf("%d rows, %d keys during the pause", rows, keys)
	}
	var status struct{ Pause *store.Pause }
	r := call(t, w.env, "status", "--json")
	if err := json.Unmarshal([]byte(r.out), &status); err != nil || status.Pause == nil || status.Pause.Reason != "moving redis" || status.Pause.EndsAt != nil {
		t.Errorf("%v: %+v", err, r)
	}
	if r := call(t, w.env, "status"); !strings.Contains(r.out, "\npaused       since 20") || !strings.Contains(r.out, ": moving redis  database account root@") || !strings.Contains(r.out, "\nwaiting      5\n") {
		t.Errorf("%+v", r)
	}
	if r := call(t, w.env, "resume"); r.code != exitDone || !strings.HasPrefix(r.out, "all workers resume; they were paused since") {
		t.Errorf("%+v", r)
	}
	late.until("the rows go", func() bool { return w.count("cache_outbox") == 0 && w.keys() == 0 })
	late.until("the log says so", func() bool { return late.log.has("the pause is over") })
	if r := call(t, w.env, "resume"); r.code != exitDone || r.out != "nothing was paused\n" {
		t.Errorf("%+v", r)
	}
	var began struct{ Pause *store.Pause }
	r = call(t, w.env, "pause", "--for", "1h", "--reason", "moving redis", "--json")
	if err := json.Unmarshal([]byte(r.out), &began); err != nil || began.Pause == nil || began.Pause.Reason != "moving redis" || began.Pause.EndsAt == nil {
		t.Errorf("%v: %+v", err, r)
	}
	var over struct{ Ended *store.Pause }
	r = call(t, w.env, "resume", "--json")
	if err := json.Unmarshal([]byte(r.out), &over); err != nil || over.Ended == nil || over.Ended.Reason != "moving redis" {
		t.Errorf("%v: %+v", err, r)
	}
}

// A pause with an end ends by the database's clock.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := call(t, w.env, "pause", "--for", "3s"); r.code != exitDone || r.out != "all workers pause for 3s\n" {
		t.Fatalf("%+v", r)
	}
	r := w.start()
	r.until("the worker pauses", func() bool { return r.log.has("paused: rows wait") })
	w.fill(5)
	r.until("the rows go", func() bool { return w.count("cache_outbox") == 0 && w.keys() == 0 })
	if w.count("cache_outbox_control WHERE ends_at > UTC_TIMESTAMP(6)") != 0 {
		t.Error("the rows went before the end")
	}
	for _, args := range [][]string{{}, {"--reason", "no end"}, {"--for", "1h", "--until-resumed"}, {"--for", "-3s"}, {"--for", "0s"}, {"--for", "1h", "--reason", strings.Repeat("long ", 200)}} {
		if r := call(t, w.env, append([]string{"pause"}, args...)...); r.code != exitUsage {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
