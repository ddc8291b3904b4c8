package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// replay unlinks again what the journal has, all of it or what is asked for; a dry run only counts.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rows = 30
	w.fill(rows)
	w.start("--once", "--batch-rows", "7").wantExit(exitDone)
	w.setKeys(rows)
	replay := func(args ...string) result {
		t.Helper()
		r := call(t, w.env, append([]string{"replay"}, args...)...)
		if r.code != exitDone {
			t.Fatalf("replay %q: %+v", args, r)
		}
		return r
	}
	want := "would have unlinked 30 keys of 30 rows in 5 batches, would have requested 0 sweeps\n"
	if r := replay("--all", "--dry-run"); r.out != want || w.keys() != rows {
		t.Errorf("%+v, %d keys left", r, w.keys())
	}
	if r := replay("--since", "1h", "--entity", "thing", "--id", "9"); r.out != "unlinked 1 key of 1 row in 1 batch, requested 0 sweeps\n" || w.keys() != rows-1 {
		t.Errorf("%+v, %d keys left", r, w.keys())
	}
	// The journal has the keys: without a map the messages go where those of a map go that names no
	// channel.
	w.env["UNSTALE_MAP"] = ""
	sub := w.redis.Subscribe(t.Context(), "cache:invalidate", "elsewhere")
	defer sub.Close()
	for range 2 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{}, {"--channel", "elsewhere", "--format", "array"}} {
		r := replay(append(args, "--since", "1h", "--entity", "thing", "--id", "9")...)
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil || !strings.HasPrefix(r.out, "unlinked 1 key ") {
			t.Fatalf("%+v, %v", r, err)
		}
		if usual := len(args) == 0; usual != (m.Channel == "cache:invalidate") || usual != strings.HasPrefix(m.Payload, `{"v":1,`) || usual != strings.Contains(r.err, "no mapping.yaml here: messages go to cache:invalidate") {
			t.Errorf("%s: %s; %+v", m.Channel, m.Payload, r)
		}
		if len(args) == 0 { // readers know that they have received all of it
			if bye, err := sub.ReceiveMessage(t.Context()); err != nil || !strings.Contains(bye.Payload, `"last":true`) {
				t.Errorf("no goodbye: %+v, %v", bye, err)
			}
		}
	}
	for _, args := range [][]string{{}, {"--channel", "elsewhere"}, {"--format", "array"}} {
		args = append([]string{"replay", "--since", "1h", "--map", "no/such/file"}, args...)
		if r := call(t, w.env, args...); r.code != exitFail || !strings.Contains(r.err, "no/such/file") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := replay("--since", "1h", "--entity", "other"); !strings.HasPrefix(r.out, "unlinked 0 keys of 0 rows in 0 batches") {
		t.Errorf("%+v", r)
	}
	if r := replay("--since", "1us"); !strings.HasPrefix(r.out, "unlinked 0 keys") {
		t.Errorf("%+v", r)
	}
	var counted map[string]any
	r := replay("--all", "--json")
	if err := json.Unmarshal([]byte(r.out), &counted); err != nil || counted["keys"] != 30.0 || counted["messages"] != 1.0 || counted["dry_run"] != false {
		t.Errorf("%s: %v", r.out, err)
	}
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A hold is set again with its duration, regardless of the current map.
func TestReplayHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := strings.Replace(thingMap, `keys: ["shop:thing:{id}"]`, `keys: ["shop:thing:{id}"], hold: 1h`, 1)
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(held), 0o600); err != nil || held == thingMap {
		t.Fatal(err)
	}
	w.fill(3)
	w.start("--once").wantExit(exitDone)
	if err := w.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.env["UNSTALE_MAP"] = ""
	if r := call(t, w.env, "replay", "--all"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"lock:hold:{shop:thing:1}", "lock:hold:{shop:thing:3}"} {
		if ttl := w.redis.PTTL(t.Context(), name).Val(); ttl > time.Hour || ttl < 50*time.Minute {
			t.Errorf("%s lives for %v", name, ttl)
		}
	}
}

// With both the channel and the format a replay needs no map: one that is missing or broken, even
// if it is named by the image's variable, does not prevent it.
func TestReplayWithoutTheMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	broken := writeFile(t, "version: 1\nentities: [")
	for _, named := range []string{"/no/such/map.yaml", broken} {
		w.setKeys(1)
		w.env["UNSTALE_MAP"] = named
		r := call(t, w.env, "replay", "--since", "1h", "--channel", "c", "--format", "event")
		if r.code != exitDone || r.err != "" || w.keys() != 0 {
			t.Errorf("variable %s: %+v, %d keys left", named, r, w.keys())
		}
		if r := call(t, w.env, "replay", "--since", "1h", "--map", named, "--channel", "c", "--format", "array"); r.code != exitDone || r.err != "" {
			t.Errorf("flag %s: %+v", named, r)
		}
	}
}

// Without a map, messages go where those of the workers go; if workers differ, the call must
// choose.
func TestReplayAsWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	on := func(channel string) {
		if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte("publish: {channel: "+channel+", format: array}\n"+thingMap), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	on("a")
	w.fill(1)
	first := w.start("--worker", "web-1")
	first.until("the key is gone, and the worker noted", func() bool {
		return w.keys() == 0 && w.count("cache_outbox") == 0 && w.count("cache_outbox_workers WHERE state = 'working'") == 1
	})
	file := w.env["UNSTALE_MAP"]
	w.env["UNSTALE_MAP"] = "/no/such/map.yaml" // as in the image, without the file
	sub := w.redis.Subscribe(t.Context(), "a")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := call(t, w.env, "replay", "--all")
	if r.code != exitDone || !strings.Contains(r.err, "no /no/such/map.yaml here: messages go to a (array), like worker web-1;") {
		t.Errorf("%+v", r)
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != `["shop:thing:1"]` {
		t.Errorf("%v, %v", m, err)
	}
	if r := call(t, w.env, "replay", "--all", "--map", "no/such/file"); r.code != exitFail || !strings.Contains(r.err, "no/such/file") {
		t.Errorf("%+v", r)
	}
	// Both read the file, so the first one has to be frozen to stay where it is.
	first.signal(syscall.SIGSTOP)
	w.env["UNSTALE_MAP"] = file
	on("b")
	second := w.start("--worker", "web-2")
	second.until("both are noted", func() bool { return w.count("cache_outbox_workers WHERE state = 'working'") == 2 })
	w.env["UNSTALE_MAP"] = "/no/such/map.yaml"
	if r := call(t, w.env, "replay", "--all"); r.code != exitFail || !strings.Contains(r.err, "where do messages go? worker web-2 publishes on b (array), and worker web-1 on a (array); give --channel and --format") {
		t.Errorf("%+v", r)
	}
	if r := call(t, w.env, "status", "--json"); !strings.Contains(r.out, `"maps_differ"`) {
		t.Errorf("%+v", r)
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, args := range map[string][]string{
		"give either --since":          {},
		"give either --since, such":    {"--since", "1m", "--all"},
		"must be a positive dura":      {"--since", "-1m"},
		"--id needs --entity":          {"--all", "--id", "7"},
		"--entity is empty":            {"--since", "1m", "--entity", ""},
		"--id is empty":                {"--since", "1m", "--entity", "thing", "--id", ""},
		"--since is 0":                 {"--since", "0s"},
		"unknown argument \"product\"": {"product"},
	} {
		if r := call(t, w.env, append([]string{"replay"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	w.fill(3)
	w.start("--once").wantExit(exitDone)
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := call(t, w.env, "replay", "--all"); r.code != exitFail || !strings.Contains(r.err, "replay is not complete, run it again") ||
		!strings.HasPrefix(r.out, "unlinked 0 keys of 0 rows in 0 batches") {
		t.Errorf("without Redis: %+v", r)
	}
}

// A batch of the journal that cannot be read: replay and history do the rest and name it, and
// status shows it once a worker has set it aside.
func TestDamagedBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill(20)
	w.start("--once", "--batch-rows", "10").wantExit(exitDone)
	w.setKeys(20)
	if _, err := w.db.Exec("UPDATE cache_outbox_journal SET body = 'x' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	r := call(t, w.env, "replay", "--all")
	if r.code != exitFail || !strings.Contains(r.err, "these batches of the journal cannot be read: [1]") || w.keys() != 10 {
		t.Errorf("replay: %+v, %d keys left", r, w.keys())
	}
	if r = call(t, w.env, "replay", "--all", "--json"); !strings.Contains(strings.Join(strings.Fields(r.out), ""), `"damaged":[1]`) {
		t.Errorf("replay --json: %+v", r)
	}
	r = call(t, w.env, "history", "--entity", "thing")
	if r.code != exitDone || !strings.Contains(r.out, "row 20") || !strings.Contains(r.out, "\nbatch 1 of the journal cannot be read, and may have more\n") {
		t.Errorf("history: %+v", r)
	}
	if r = call(t, w.env, "history", "--entity", "thing", "--id", "20"); r.code != exitDone || strings.Contains(r.out, "cannot be read") {
		t.Errorf("history of a row that is elsewhere: %+v", r)
	}
	if r = call(t, w.env, "status"); r.code != exitUnknown || strings.Contains(r.out, "damaged") {
		t.Errorf("status: %+v", r)
	}
	if _, err := w.db.Exec("UPDATE cache_outbox_journal SET epoch = 'damaged' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	if r = call(t, w.env, "status"); r.code != exitUnknown || !strings.Contains(r.out, "damaged      1 of the journal's batches") {
		t.Errorf("status: %+v", r)
	}
}
