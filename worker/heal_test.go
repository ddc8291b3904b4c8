package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// aWorldInTime returns a world whose Redis can go back in time.
func aWorldInTime(t *testing.T) (*world, *past) {
	t.Helper()
	w := newWorld(t, plainMap)
	return w, &past{w, w.onOwnRedis()}
}

type past struct {
	w      *world
	server *servers.Redis
}

// remember saves the state for goBack. Without it, goBack returns to an empty Redis.
func (p *past) remember() {
	p.w.t.Helper()
	if err := p.w.redis.Save(p.w.t.Context()).Err(); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *past) goBack() {
	p.w.t.Helper()
	if err := p.server.Kill(); err != nil {
		p.w.t.Fatal(err)
	}
	if err := p.server.Restart(p.w.t.Context()); err != nil {
		p.w.t.Fatal(err)
	}
	testenv.Eventually(p.w.t, "redis answers", func() bool { return p.w.redis.Ping(p.w.t.Context()).Err() == nil })
}

func wantLeft(t *testing.T, w *world, want ...string) {
	t.Helper()
	if got := w.left(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q are left, wanted %q", got, want)
	}
}

// healed returns the number of batches that a worker has unlinked again, by its metrics.
func healed(t *testing.T, r *running) int {
	return int(metric(t, r, "unstale_healed_batches_total"))
}

// Sentence 11: a worker notices by itself that Redis came back with old data, and unlinks again
// what it had unlinked.
func TestRedisGoesBackInTime(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(6, "shop:thing:%d")...)
	r := w.worker(worker.Config{BatchRows: 1})
	r.start(t)
	w.enqueue(things(1)...)
	testenv.Eventually(t, "the first key goes", func() bool { return len(w.left()) == 5 })
	past.remember()
	w.enqueue(things(4)[1:]...)
	testenv.Eventually(t, "the keys go", func() bool { return len(w.left()) == 2 })
	past.goBack()
	wantLeft(t, w, texts(6, "shop:thing:%d")[1:]...)
	testenv.Eventually(t, "what was unlinked is gone again", func() bool { return len(w.left()) == 2 })
	wantLeft(t, w, "shop:thing:5", "shop:thing:6")
	testenv.Eventually(t, "the log says that it is over", func() bool { return r.log.count("redis has everything again") == 1 })
	// the position before the loss may be overwritten by the pipeline that detects it
	if n := healed(t, r); n < 3 || n > 4 {
		t.Errorf("%d batches were healed, 3 were lost", n)
	}
	w.enqueue(things(5)[4:]...)
	testenv.Eventually(t, "the worker goes on", func() bool { return len(w.left()) == 1 })
}

// Sentence 11: what was lost while no worker ran is found at the start.
func TestLossWhileNobodyRan(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(3, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(2)...)
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "shop:thing:3")
	past.goBack()
	w.enqueue(things(3)[2:]...)
	var seen []string
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return watching{real, func(targets []keyspace.Target) {
			for _, target := range targets {
				seen = append(seen, target.Key)
			}
		}}
	})
	r.drain(t)
	wantLeft(t, w)
	if got := strings.Join(seen, " "); got != "shop:thing:1 shop:thing:2 shop:thing:3" {
		t.Errorf("unlinked %s", got)
	}
	again := w.worker(worker.Config{})
	again.drain(t)
	if n := healed(t, again); n != 0 {
		t.Errorf("%d batches were healed a second time", n)
	}
}

// Sentence 11: healing may take long; what is written meanwhile does not wait for it.
func TestRowsDoNotWaitForHealing(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(3, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(1)...)
	w.worker(worker.Config{}).drain(t)
	past.goBack()
	wantLeft(t, w, texts(3, "shop:thing:%d")...)

	release := holdJournal(t, w)
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "the worker notices the loss", func() bool { return metric(t, r, "unstale_heals_total") == 1 })
	w.enqueue(things(3)[1:]...)
	testenv.Eventually(t, "what was written meanwhile goes", func() bool { return len(w.left()) == 1 })
	testenv.Eventually(t, "and its rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	wantLeft(t, w, "shop:thing:1")
	r.worksAs(t, "Redis went back to older data, so removed keys are there again, and worker test unlinks them")
	release()
	testenv.Eventually(t, "the loss is healed", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "the log says that it is over", func() bool { return r.log.count("redis has everything again") == 1 })
}

// worksAs waits until the status contains a sentence, and checks that the worker is ready although
// it withholds heartbeats.
func (r *running) worksAs(t *testing.T, sentence string) {
	t.Helper()
	says := ""
	defer func() {
		if t.Failed() {
			t.Logf("the status is %s; ready: %v", says, r.Health().Ready())
		}
	}()
	testenv.Eventually(t, "the status is "+sentence, func() bool {
		s, err := r.store.Overview.Status(t.Context())
		says = fmt.Sprint(status.Judge(s, nil), err)
		return strings.Contains(says, sentence)
	})
	if err := r.Health().Ready(); err != nil || metric(t, r, "unstale_up") != 1 {
		t.Errorf("rows are processed, and the worker is not ready: %v, unstale_up is %v", err, metric(t, r, "unstale_up"))
	}
	if metric(t, r, "unstale_heartbeat") > 0 {
		t.Error("the worker vouches for Redis before it has healed it")
	}
}

// An outage ends when both servers answer again, and not when what Redis lost in it is healed.
func TestOutageEndsBeforeHealing(t *testing.T) {
	t.Parallel()
	for name, saves := range map[string]bool{"old data": true, "no data": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, past := aWorldInTime(t)
			w.set(texts(3, "shop:thing:%d")...)
			if saves {
				past.remember()
			}
			r := w.worker(worker.Config{})
			r.start(t)
			testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
			w.enqueue(things(2)...)
			testenv.Eventually(t, "the keys go", func() bool { return len(w.left()) == 1 && w.count("cache_outbox") == 0 })
			release := holdJournal(t, w)
			if err := past.server.Kill(); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "the outage shows", func() bool { return r.Health().Ready() != nil })
			if err := past.server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "the outage is over", func() bool { return r.Health().Ready() == nil && r.log.count("outage is over") == 1 })
			w.enqueue(things(3)[2:]...)
			testenv.Eventually(t, "a row goes", func() bool { return w.count("cache_outbox") == 0 })
			r.worksAs(t, map[bool]string{true: "Redis went back to older data, so removed keys are there again, and worker test unlinks them", false: "nothing is stale: "}[saves])
			release()
			testenv.Eventually(t, "heartbeats are sent", func() bool { return metric(t, r, "unstale_heartbeat") == 1 })
			wantLeft(t, w)
		})
	}
}

// holdJournal holds all batches, as another worker that heals them and is slow.
func holdJournal(t *testing.T, w *world) (release func()) {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // it has ended before, unless the test fails
	if _, err := tx.Exec("SELECT id FROM cache_outbox_journal WHERE beat > 0 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nor do they wait while the batches of a Redis that came back empty, which may be a hundred
// thousand, are made those of the new one.
func TestRowsDoNotWaitForAdoption(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.enqueue(things(1)...)
	w.worker(worker.Config{}).drain(t)
	past.goBack()
	release := holdJournal(t, w)
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "the worker notices that Redis is empty", func() bool { return r.log.count("redis holds no data") > 0 })
	w.enqueue(things(3)...)
	testenv.Eventually(t, "what was written meanwhile is settled", func() bool { return w.count("cache_outbox") == 0 })
	r.worksAs(t, "nothing is stale: all rows that were committed by ")
	if n := metric(t, r, "unstale_healing_batches_left"); n < 1 {
		t.Errorf("%v batches are left", n)
	}
	release()
	testenv.Eventually(t, "the worker vouches for Redis", func() bool { return metric(t, r, "unstale_heartbeats_total") > 0 })
	if n := metric(t, r, "unstale_healing_batches_left"); n != 0 {
		t.Errorf("%v batches are left in the end", n)
	}
	if n := healed(t, r); n != 0 {
		t.Errorf("%d batches were healed", n)
	}
}

// watching shows what is unlinked.
type watching struct {
	worker.Redis
	look func([]keyspace.Target)
}

func (w watching) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	w.look(targets)
	return w.Redis.Unlink(ctx, targets)
}

// Redis goes back in time during a batch: its keys are unlinked, Redis loses that, and then the
// batch is settled. Another worker detects it, even if this one dies meanwhile.
func TestLossWhileABatchIsUnderWay(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(3, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(3)...)
	first := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return meanwhile{real, func() {
			wantLeft(t, w)
			past.goBack()
		}}
	})
	first.drain(t)
	wantLeft(t, w, texts(3, "shop:thing:%d")...)
	if n := w.count("cache_outbox"); n != 0 {
		t.Errorf("%d rows wait: the test has lost its point", n)
	}
	second := w.worker(worker.Config{})
	second.drain(t)
	wantLeft(t, w)
	if n := healed(t, second); n != 1 {
		t.Errorf("%d batches were healed", n)
	}
}

// meanwhile does something between UNLINK and settlement.
type meanwhile struct {
	worker.Redis
	do func()
}

func (m meanwhile) Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error) {
	m.do()
	// The message goes over a connection that the old server has taken with it, or over a new one.
	for {
		n, err := m.Redis.Publish(ctx, channel, f, news)
		if err == nil || ctx.Err() != nil {
			return n, err
		}
	}
}

// Workers that find the same loss share the work: no batch is healed twice.
func TestHealIsShared(t *testing.T) {
	t.Parallel()
	const rows = 60
	w, past := aWorldInTime(t)
	w.set(texts(rows, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(rows)...)
	w.worker(worker.Config{BatchRows: 1}).drain(t)
	past.goBack()
	workers := []*running{w.worker(worker.Config{}), w.worker(worker.Config{}), w.worker(worker.Config{})}
	for _, r := range workers {
		r.start(t)
	}
	testenv.Eventually(t, "all keys are gone", func() bool { return len(w.left()) == 0 })
	total := 0
	for _, r := range workers {
		testenv.Eventually(t, "all is healed", func() bool { return metric(t, r, "unstale_heartbeats_total") > 0 })
		total += healed(t, r)
	}
	if total != rows {
		t.Errorf("%d batches were healed, %d were lost", total, rows)
	}
}

// A Redis that comes back without data holds nothing stale, then and later.
func TestEmptyRedisIsNotHealed(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.enqueue(things(20)...)
	w.worker(worker.Config{BatchRows: 1}).drain(t)
	past.goBack()
	for range 2 {
		r := w.worker(worker.Config{})
		r.drain(t)
		if n := healed(t, r); n != 0 {
			t.Errorf("%d batches were healed", n)
		}
		w.set("shop:thing:1") // filled again, and not stale
	}
	wantLeft(t, w, "shop:thing:1")
}

// Patterns and index sets that were swept are swept again, the set under the id that its private
// name was made of.
func TestLostSweepsAreSweptAgain(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	fill := func() {
		w.set("shop:list:7:p1", "shop:member", "shop:list:8:p1")
		if err := w.redis.SAdd(t.Context(), "tag:7", "shop:member").Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.writeMap(sweepMap)
	fill()
	past.remember()
	w.enqueue(outbox.Invalidation{Entity: "shelf", ID: "7"})
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "shop:list:8:p1")
	past.goBack()
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "shop:list:8:p1")
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NULL"); n != 0 {
		t.Errorf("%d sweeps wait", n)
	}
}

// Rows of reserved entities, whose keys no map has, are healed like all others.
func TestLostReservedRowsAreHealed(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set("elsewhere:*", "elsewhere:1", "other:list:1", "other:list:2", "shop:thing:1")
	past.remember()
	w.enqueue(outbox.Invalidation{Entity: "unstale/key", ID: "elsewhere:*"}, outbox.Invalidation{Entity: "unstale/pattern", ID: "other:list:*"})
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "elsewhere:1", "shop:thing:1")
	past.goBack()
	wantLeft(t, w, "elsewhere:*", "elsewhere:1", "other:list:1", "other:list:2", "shop:thing:1")
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w, "elsewhere:1", "shop:thing:1")
}

const sweepMap = `
version: 1
publish: {channel: "cache:invalidate"}
entities:
  shelf:
    patterns: ["shop:list:{id}:*"]
    sets: ["tag:{id}"]
`

// Healing that an outage interrupts leaves the rest, and continues later.
func TestHealIsCutOff(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(9, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(9)...)
	w.worker(worker.Config{BatchRows: 1}).drain(t)
	past.goBack()
	down := &atomic.Bool{}
	down.Store(true)
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return failing{real, down} })
	r.start(t)
	testenv.Eventually(t, "the outage is noticed", func() bool { return r.log.count("state=\"redis loading\"") == 1 })
	if n := len(w.left()); n != 9 {
		t.Errorf("%d keys are left of 9", n)
	}
	const healing, left = "unstale_healing", "unstale_healing_batches_left"
	// positions; some may belong to no batch
	if metric(t, r, healing) != 1 || metric(t, r, left) < 9 || metric(t, r, left) > 12 {
		t.Errorf("healing is %v, with %v batches left", metric(t, r, healing), metric(t, r, left))
	}
	down.Store(false)
	testenv.Eventually(t, "the keys go", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "healing is over", func() bool { return metric(t, r, healing) == 0 && metric(t, r, left) == 0 })
}

// metric returns the value of one of the worker's figures.
func metric(t *testing.T, r *running, name string) float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	r.Metrics().Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// Thousands of sweeps hold healing up no more than keys do.
func TestHealOfManySweeps(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.writeMap("version: 1\npublish: {channel: \"cache:invalidate\"}\nentities: {shelf: {patterns: [\"shop:list:{id}:*\"]}}\n")
	invs := make([]outbox.Invalidation, 3000)
	for i := range invs {
		invs[i] = outbox.Invalidation{Entity: "shelf", ID: strconv.Itoa(i)}
	}
	w.set("shop:list:7:p1")
	past.remember()
	for range 3 {
		w.enqueue(invs...)
		w.worker(worker.Config{}).drain(t)
	}
	wantLeft(t, w)
	past.goBack()
	r := w.worker(worker.Config{})
	r.drain(t)
	wantLeft(t, w)
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NULL"); n != 0 {
		t.Errorf("%d sweeps wait", n)
	}
}

// A batch of the journal that cannot be read delays no other: it is set aside where operators see
// it, and is not an outage.
func TestHealMeetsADamagedBatch(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set(texts(4, "shop:thing:%d")...)
	past.remember()
	w.enqueue(things(3)...)
	w.worker(worker.Config{BatchRows: 1}).drain(t)
	var batch uint64
	if err := w.db.QueryRow("SELECT id FROM cache_outbox_journal ORDER BY beat LIMIT 1, 1").Scan(&batch); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE cache_outbox_journal SET body = REVERSE(body) WHERE id = ?", batch)
	past.goBack()
	w.enqueue(things(4)[3:]...)
	r := w.worker(worker.Config{GaugeSchedule: "@every 1s"})
	r.start(t)
	testenv.Eventually(t, "the others are gone", func() bool { return strings.Join(w.left(), " ") == "shop:thing:2" })
	testenv.Eventually(t, "the gauge tells", func() bool { return metric(t, r, "unstale_journal_damaged") == 1 })
	if n := r.log.count(fmt.Sprintf("level=ERROR msg=\"a batch of the journal cannot be read, so it is not healed: "+
		"what it unlinked may be stale until its TTL; it is set aside, the others are healed\" batch=%d rows=1 ", batch)); n != 1 || r.log.count("outage") != 0 {
		t.Errorf("%d lines about it", n)
	}
	if w.count("cache_outbox_journal WHERE epoch = 'damaged'") != 1 {
		t.Error("the batch is not kept")
	}
}

// One worker whose own positions alone were lost has nothing to heal, and does not speak of others
// that did.
func TestNothingToHeal(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set("shop:thing:1")
	past.remember()
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
	past.goBack()
	testenv.Eventually(t, "it compares", func() bool {
		return r.log.count("compared with the journal: redis has everything that was settled") == 1
	})
	if r.log.count("other workers") != 0 || r.log.count("healed:") != 0 {
		t.Error("the log says more than is known")
	}
}
