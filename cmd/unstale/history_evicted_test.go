package main

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

type (
	past       = history.Past
	settlement = history.Settlement
	evictor    = history.Evictor
)

// reader starts the cache of a process with an L1 that receives the worker's messages.
func (w *world) reader(process string) *cache.Cache {
	w.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: w.server.Addr(), ContextTimeoutEnabled: true})
	c, err := cache.New(cache.Config{
		Redis: client, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Memory: cache.Memory{Size: 10, MaxStaleness: time.Minute, Report: process != "", Process: process},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = c.Close(), client.Close() })
	testenv.Eventually(w.t, process+" to hear", func() bool { return c.Healthy() == nil })
	return c
}

// evictedBy is who evicted a row, as history says.
func (w *world) evictedBy(row string) []evictor {
	w.t.Helper()
	var found past
	r := call(w.t, w.env, "history", "--row", row, "--json")
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Found) != 1 {
		w.t.Fatalf("%v: %+v", err, r)
	}
	return found.Found[0].EvictedBy
}

// reported returns what history says in both forms of a row, about which no report is on its way.
func (w *world) reported(env map[string]string, row string) (text string, found past) {
	w.t.Helper()
	text = call(w.t, env, "trace", row).out
	before, _, _ := strings.Cut(text, "answer: ") // which has the time since then
	r := call(w.t, env, "history", "--row", row, "--json")
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Found) != 1 || !strings.HasPrefix(call(w.t, env, "history", "--row", row).out, before+"answer: ") {
		w.t.Fatalf("%v: %+v, %s", err, r, text)
	}
	return text, found
}

// Processes that report their evictions are named; all others are unknown, with the reason if none
// is named.
func TestHistoryNamesWhoEvicted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unknown := func(row, why string) {
		t.Helper()
		text, found := w.reported(w.env, row)
		s := found.Found[0]
		if !strings.Contains(text, "(which of them evicted it is unknown: "+why) || s.EvictedBy != nil || !strings.Contains(s.EvictedUnknown, why) {
			t.Errorf("row %s: wanted %s, got %s%+v", row, why, text, s)
		}
	}
	silent := w.reader("")
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	unknown("1", "no process reports")

	one, two := w.reader("web-1"), w.reader("web\n2")
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	for _, c := range []*cache.Cache{one, two, silent} {
		testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations > 0 })
	}
	testenv.Eventually(t, "both reports", func() bool { return len(w.evictedBy("2")) == 2 })
	text, found := w.reported(w.env, "2")
	s := found.Found[0]
	if want := []evictor{{Process: "web\n2", Messages: 1}, {Process: "web-1", Messages: 1}}; !slices.Equal(s.EvictedBy, want) || s.Messages != 1 || s.EvictedUnknown != "" || found.Unreported != nil || *s.Receivers != 3 {
		t.Errorf("%+v", s)
	}
	if want := ` to 3 receivers (reported as evicted by "web\n2" and web-1; whether others evicted it is unknown), settled +`; !strings.Contains(text, want) {
		t.Errorf("wanted %q in\n%s", want, text)
	}
	if byKey := call(t, w.env, "history", "--key", "shop:thing:1").out; !strings.Contains(byKey, "web-1; whether others") {
		t.Error(byKey)
	}
	unknown("1", "reports begin at 20")
	for _, c := range []*cache.Cache{one, two, silent} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}

	// Dropped messages may be of any row. An entry that is not a report is ignored.
	dropped := protocol.Report{Process: "web-3", Epoch: "other", First: 1, Last: 2, Dropped: 7}
	for _, values := range []any{dropped.Fields(), []string{"process", "web-4"}} {
		if err := w.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	text, found = w.reported(w.env, "2")
	if !strings.Contains(text, `(reported as evicted by at least "web\n2" and web-1;`) || !strings.Contains(text, "\nnote: web-3 did not report 7 messages that it received") ||
		!maps.Equal(found.Unreported, map[string]uint64{"web-3": 7}) {
		t.Errorf("%s%+v", text, found)
	}
	w.enqueue(1)
	w.start("--once").wantExit(exitDone)
	if text, _ := w.reported(w.env, "3"); strings.Contains(text, "evicted") { // it had no subscribers
		t.Error(text)
	}
}

// Without a Redis, or without the permission to read reports, evictions are unknown, with the
// reason.
func TestHistoryMayNotReadReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.reader("web-1")
	w.fill(1)
	w.start("--once").wantExit(exitDone)
	testenv.Eventually(t, "the report", func() bool { return w.redis.Exists(t.Context(), protocol.ReportKey).Val() == 1 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	acl := func(rules ...any) {
		t.Helper()
		if err := w.redis.Do(t.Context(), append([]any{"acl", "setuser", "operator"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	env := maps.Clone(w.env)
	env["REDIS_URL"] = "redis://operator:secret@" + w.server.Addr() + "/0"
	for _, e := range []struct {
		rules []any
		want  string
	}{
		{[]any{"on", ">secret", "-@all"}, "grant the redis user +xrevrange"},
		{[]any{"+xrevrange"}, "grant the redis user ~unstale:evicted"},
		{[]any{"%R~unstale:evicted"}, "reported as evicted by web-1; "},
		{[]any{"off"}, "WRONGPASS"},
	} {
		acl(e.rules...)
		text, found := w.reported(env, "1")
		if s := found.Found[0]; !strings.Contains(text, e.want) || (s.EvictedBy == nil) != strings.Contains(s.EvictedUnknown, e.want) || len(found.Untold) > 0 {
			t.Errorf("%s: %s%+v", e.want, text, s)
		}
	}
	delete(env, "REDIS_URL")
	if text, _ := w.reported(env, "1"); !strings.Contains(text, "unknown: no --redis-url is given)") {
		t.Error(text)
	}
	// as before runs
	if _, err := w.db.Exec("UPDATE cache_outbox_journal SET journey = LEFT(journey, LENGTH(journey) - 10)"); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.reported(w.env, "1"); !strings.Contains(text, "unknown: its messages have no numbers)") {
		t.Error(text)
	}
}

// A batch of several messages may be received in part, and in the array format messages have no
// numbers.
func TestHistoryOfSeveralMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hears := w.redis.Subscribe(t.Context(), "cache:invalidate")
	defer hears.Close()
	if _, err := hears.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.enqueue(2100)
	w.start("--once", "--batch-rows", "3000").wantExit(exitDone)
	heard, err := hears.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := protocol.DecodeMessage([]byte(heard.Payload))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []protocol.Report{{Process: "all", Epoch: m.Epoch, First: 1, Last: 9}, {Process: "part", Epoch: m.Epoch, First: 2, Last: 3}, {Process: "part", Epoch: m.Epoch, First: 3, Last: 3}} {
		if err := w.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ReportKey, Values: r.Fields()}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if text, found := w.reported(w.env, "7"); !strings.Contains(text, "(reported as evicted by all and part, 2 of 3 messages; whether") || found.Found[0].Messages != 3 {
		t.Errorf("%s%+v", text, found)
	}
	if err := os.WriteFile(w.env["UNSTALE_MAP"], []byte(thingMap+"publish: {format: array}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.enqueue(1)
	w.start("--once").wantExit(exitDone)
	if text, _ := w.reported(w.env, "2101"); !strings.Contains(text, "unknown: its messages have no numbers)") {
		t.Error(text)
	}
}
