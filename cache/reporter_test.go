package cache

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A reporter's own test calls report itself.
type reporterTest struct {
	*testing.T
	*reporter
	admin *redis.Client
	log   bytes.Buffer
}

// newReporterTest makes a reporter for an account that may do what rules say.
func newReporterTest(t *testing.T, rules ...any) *reporterTest {
	t.Helper()
	server := testenv.OwnRedis(t)
	r := &reporterTest{T: t, admin: redis.NewClient(&redis.Options{Addr: server.Addr()})}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "reader", Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _, _ = r.admin.Close(), client.Close() })
	r.acl(append([]any{"on", ">secret", "-@all", "+ping"}, rules...)...)
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	config := Config{Redis: client, Timeout: 5 * time.Second, Logger: logger}.WithDefaults()
	config.Memory.Process = "p"
	r.reporter = newReporter(config, newBackend(config), nil)
	return r
}

func (r *reporterTest) acl(rules ...any) {
	r.Helper()
	if err := r.admin.Do(r.Context(), append([]any{"acl", "setuser", "reader"}, rules...)...).Err(); err != nil {
		r.Fatal(err)
	}
}

func (r *reporterTest) hear(epoch string, first, last uint64) {
	for seq := first; seq <= last; seq++ {
		r.heard(&protocol.Message{Epoch: epoch, Seq: seq, Keys: []string{"k"}})
	}
}

// want checks what Redis has, as epoch:first-last+dropped, and how many messages were dropped in
// all.
func (r *reporterTest) want(what string, total uint64, want ...string) {
	r.Helper()
	entries, err := r.admin.XRange(r.Context(), protocol.ReportKey, "-", "+").Result()
	if err != nil {
		r.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		v := e.Values
		got = append(got, fmt.Sprintf("%v:%v-%v+%v", v["epoch"], v["first"], v["last"], v["dropped"]))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || r.dropCount() != total {
		r.Errorf("%s: %d dropped, %q, wanted %d, %q", what, r.dropCount(), got, total, want)
	}
}

// Messages without a gap are one report, with the heartbeats between them; copies count for
// nothing.
func TestReportIsOfARange(t *testing.T) {
	t.Parallel()
	r := newReporterTest(t, "+xadd", "%W~"+protocol.ReportKey)
	beat := func(seq uint64) { r.heard(&protocol.Message{Epoch: "a", Seq: seq, Beat: &protocol.Beat{}}) }
	beat(1)
	r.hear("a", 2, 3)
	beat(4)
	r.hear("a", 5, 6)
	r.hear("b", 1, 1)
	r.hear("a", 5, 7)
	r.hear("a", 9, 9)
	r.hear("", 0, 0)
	r.report(t.Context())
	r.report(t.Context())
	want := []string{"a:2-7+0", "b:1-1+0", "a:9-9+0"}
	r.want("ranges", 0, want...)
	beat(10)
	r.report(t.Context())
	r.want("a heartbeat", 0, want...)
	r.hear("a", 11, 11)
	r.report(t.Context())
	r.want("more", 0, append(want, "a:11-11+0")...)
	if n := r.admin.XLen(t.Context(), protocol.ReportKey).Val(); n != 4 || r.log.Len() > 0 {
		t.Errorf("%d reports, log %s", n, &r.log)
	}
}

// Messages that do not fit are dropped, and the next report has their number.
func TestReportsOverflow(t *testing.T) {
	t.Parallel()
	r := newReporterTest(t, "+xadd", "%W~"+protocol.ReportKey)
	for i := range maxReports {
		r.hear(fmt.Sprint("e", i), 1, 2)
	}
	r.hear("more", 1, 3)
	r.hear("e7", 3, 4) // which fits in a report that waits
	r.report(t.Context())
	entries, err := r.admin.XRange(t.Context(), protocol.ReportKey, "-", "+").Result()
	if err != nil || len(entries) != maxReports || entries[7].Values["last"] != "4" {
		t.Fatalf("%v, %v", entries, err)
	}
	if r.admin.Del(t.Context(), protocol.ReportKey).Err() != nil || entries[0].Values["dropped"] != "3" {
		t.Errorf("%v", entries[0])
	}
	r.hear("more", 4, 4)
	r.report(t.Context())
	r.want("afterwards", 3, "more:4-4+0")
}

// A refusal is logged once, with the missing permission, and retried after a while. Dropped
// messages are reported then.
func TestReportsAreRefused(t *testing.T) {
	t.Parallel()
	r := newReporterTest(t)
	r.hear("a", 1, 2)
	r.report(t.Context())
	r.want("refused", 2)
	if log := r.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "+xadd %W~unstale:evicted") || !strings.Contains(log, "NOPERM") {
		t.Error(log)
	}
	r.acl("+xadd", "%W~"+protocol.ReportKey)
	r.hear("a", 3, 3)
	r.report(t.Context())
	r.want("before it asks again", 3)
	r.refusal.refused = time.Now().Add(-reportPause)
	r.hear("a", 4, 4)
	r.report(t.Context())
	r.want("granted", 3, "a:4-4+3")
	if log := r.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "evictions are reported again") {
		t.Error(log)
	}
	if err := r.admin.Do(t.Context(), "client", "kill", "user", "reader").Err(); err != nil {
		t.Fatal(err)
	}
	r.acl("off")
	r.hear("a", 5, 9)
	r.report(t.Context())
	r.acl("on")
	r.hear("a", 10, 10)
	r.report(t.Context())
	r.want("back", 8, "a:4-4+3", "a:10-10+5")
}

// Receiving a message allocates nothing if it is not reported, nor for each further one of a range.
func TestReportsAllocateNothing(t *testing.T) {
	m := &protocol.Message{Epoch: "a", Seq: 1, Keys: []string{"k"}}
	var none *reporter
	some := &reporter{process: "p"}
	some.heard(m)
	for name, r := range map[string]*reporter{"off": none, "on": some} {
		if n := testing.AllocsPerRun(1000, func() { m.Seq++; r.heard(m) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
