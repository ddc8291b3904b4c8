package main

import (
	"encoding/json"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// While MySQL blocks the status that workers write, the command reads it in Redis, or reports that
// no Redis is given.
func TestStatusReadsWorkersInRedis(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	r := j.start("--worker", "web-1")
	j.says("fresh", fresh)
	locked, err := j.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if _, err := locked.ExecContext(t.Context(), "LOCK TABLES cache_outbox_workers READ"); err != nil {
		t.Fatal(err)
	}
	alone := maps.Clone(j.env)
	delete(alone, "REDIS_URL")
	with := func(env map[string]string) (r result, out struct {
		Verdict, Says string
		Redis         string `json:"workers_in_redis"`
	}) {
		t.Helper()
		r = call(t, env, "status", "--json")
		if err := json.Unmarshal([]byte(r.out), &out); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return r, out
	}
	testenv.Eventually(t, "MySQL takes the worker for gone", func() bool {
		r, out := with(alone)
		return r.code == exitUnknown && strings.Contains(out.Says, "no worker has been heard for ") && strings.Contains(out.Says, "--redis-url") && out.Redis == "not given"
	})
	if r, out := with(j.env); r.code != exitDone || out.Verdict != "fresh" || out.Redis != "read" {
		t.Errorf("%+v", r)
	}
	if text := call(t, alone, "status"); !strings.Contains(text.out, "\nworkers      as MySQL knows them; --redis-url adds") {
		t.Errorf("%+v", text)
	}
	away := maps.Clone(j.env)
	away["REDIS_URL"] = "redis://127.0.0.1:1"
	if r, out := with(away); r.code != exitUnknown || out.Redis != "unreadable" {
		t.Errorf("%+v", r)
	}
	if text := call(t, away, "status"); !strings.Contains(text.out, "cannot be read: ") || strings.Contains(text.err, "redis") {
		t.Errorf("%+v", text)
	}
	away["REDIS_URL"] = "nonsense://"
	if r := call(t, away, "status"); r.code != exitUsage || !strings.Contains(r.err, "--redis-url") {
		t.Errorf("%+v", r)
	}
	if _, err := locked.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGTERM)
	r.wantExit(exitDone)
}
