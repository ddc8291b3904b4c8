package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const plainMap = `
version: 1
publish: {channel: "cache:invalidate"}
entities:
  thing:    {keys: ["shop:thing:{id}"]}
  list:     {patterns: ["shop:list:{id}:*"]}
  tagged:   {sets: ["tag:{id}"]}
  again:    {keys: ["shop:again:{id}"], repeat: [1h]}
  held:     {keys: ["shop:held:{id}"], hold: 5s}
`

func things(n int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i, id := range texts(n, "%d") {
		invs[i] = outbox.Invalidation{Entity: "thing", ID: id}
	}
	return invs
}

// Sentence 2: nothing happens for a transaction that rolled back, or before it commits.
func TestOnlyCommittedRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.set("shop:thing:1", "shop:thing:2", "shop:thing:3")
	open, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rolled, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(outbox.Enqueue(t.Context(), open, things(1)...), outbox.Enqueue(t.Context(), rolled, things(2)[1:]...), rolled.Rollback()); err != nil {
		t.Fatal(err)
	}
	w.enqueue(things(3)[2:]...)
	r.start(t)
	gone := func(key string) func() bool {
		return func() bool { return w.redis.Exists(t.Context(), key).Val() == 0 }
	}
	testenv.Eventually(t, "the committed row's key goes", gone("shop:thing:3"))
	if left := strings.Join(w.left(), " "); left != "shop:thing:1 shop:thing:2" {
		t.Errorf("left %s", left)
	}
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the late row's key goes", gone("shop:thing:1"))
	if left := strings.Join(w.left(), " "); left != "shop:thing:2" {
		t.Errorf("left %s", left)
	}
}

// Sentence 4: a transaction that inserted first and commits last, 10,000 ids later, is not missed.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{IdleInterval: 5 * time.Millisecond})
	late, err := w.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Enqueue(t.Context(), late, outbox.Invalidation{Entity: "thing", ID: "late"}); err != nil {
		t.Fatal(err)
	}
	w.set("shop:thing:late")
	r.start(t)
	w.enqueue(things(10_000)...)
	testenv.Eventually(t, "the other rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the late row's key goes", func() bool { return len(w.left()) == 0 })
}

// A wake-up makes the worker poll immediately; the idle interval here exceeds the timeout of the
// test.
func TestWakeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{IdleInterval: time.Hour, WakeChannel: w.channel + ":wake"})
	r.start(t)
	testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
	testenv.Eventually(t, "the worker listens", func() bool {
		return w.redis.PubSubNumSub(t.Context(), w.channel+":wake").Val()[w.channel+":wake"] == 1
	})
	w.set("shop:thing:1")
	w.enqueue(things(1)...)
	if err := w.redis.Publish(t.Context(), w.channel+":wake", "").Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the key goes", func() bool { return len(w.left()) == 0 })
}

// Patterns and index sets go through the sweep table; an index set's members are named in the
// event.
func TestSweepsPatternsAndSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	e := w.listen()
	w.set("shop:list:7:p1", "shop:list:77:p1", "shop:thing:1", "shop:thing:2", "lock:fill:{shop:list:7:p1}")
	if err := w.redis.SAdd(t.Context(), "tag:x", "shop:thing:1").Err(); err != nil {
		t.Fatal(err)
	}
	w.enqueue(outbox.Invalidation{Entity: "list", ID: "7"}, outbox.Invalidation{Entity: "list", ID: "7"}, outbox.Invalidation{Entity: "tagged", ID: "x"})
	r.drain(t)
	if left := strings.Join(w.left(), " "); left != "shop:list:77:p1 shop:thing:2" {
		t.Errorf("left %s", left)
	}
	keys, patterns := e.heard(2)
	if strings.Join(keys, " ") != "shop:thing:1" || strings.Join(patterns, " ") != "shop:list:7:*" {
		t.Errorf("heard %q, %q", keys, patterns)
	}
	if n := w.count("cache_outbox_sweeps WHERE swept_at IS NULL"); n != 0 {
		t.Errorf("%d sweeps left", n)
	}
}

// A set that Redis refuses to sweep waits where status shows it, and delays nothing else.
func TestRefusedSetWaitsVisibly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.set("tag:text", "shop:list:7:p1")
	w.enqueue(outbox.Invalidation{Entity: "tagged", ID: "text"}, outbox.Invalidation{Entity: "list", ID: "7"})
	r.drain(t)
	if left := strings.Join(w.left(), " "); left != "tag:text" {
		t.Errorf("left %s", left)
	}
	st, err := r.store.Overview.Status(t.Context())
	if err != nil || st.Sweeps-st.Settling != 1 || st.SweepsRefused != 1 || !strings.Contains(st.SweepError, "tag:text") {
		t.Errorf("status %+v, %v", st, err)
	}
}

// repeat runs a row again after its delay, exactly once.
func TestRepeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	w.enqueue(outbox.Invalidation{Entity: "again", ID: "1"})
	r.drain(t)
	w.set("shop:again:1") // a slow reader puts the old value back
	var repeated bool
	if err := w.db.QueryRow("SELECT repeated FROM cache_outbox_delayed").Scan(&repeated); err != nil || !repeated {
		t.Fatalf("repeated %v, %v", repeated, err)
	}
	w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)") // an hour passes
	r.drain(t)
	if left, n := w.left(), w.count("cache_outbox_delayed"); len(left) != 0 || n != 0 {
		t.Errorf("left %q and %d delayed rows", left, n)
	}
	if n := w.journalled()[1]; n != 2 {
		t.Errorf("settled %d times", n)
	}
}

// A row with a time runs then, for any writer.
func TestScheduled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.set("shop:thing:soon", "shop:thing:sql", "shop:thing:later")
	w.enqueue(
		outbox.Invalidation{Entity: "thing", ID: "soon", NotBefore: time.Now().Add(200 * time.Millisecond)},
		outbox.Invalidation{Entity: "thing", ID: "later", NotBefore: time.Now().Add(time.Hour)},
	)
	w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES ('thing', 'sql', UTC_TIMESTAMP(6))")
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "what is due goes", func() bool { return strings.Join(w.left(), " ") == "shop:thing:later" })
}

// refusing makes Redis refuse one key, as NOPERM does; everything else is the real thing.
type refusing struct {
	worker.Redis
	key string
}

func (r refusing) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	done, err := r.Redis.Unlink(ctx, targets)
	for i, target := range targets {
		if target.Key == r.key {
			done.Failures = append(done.Failures, keyspace.Failure{Index: i, Err: errors.New("NOPERM")})
		}
	}
	return done, err
}

// Sentence 6: a key that Redis refuses delays its row, and dead-letters it when its attempts are
// used up.
func TestRefusedKeyIsDelayedThenDeadLettered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.set(texts(3, "shop:thing:%d")...)
	w.enqueue(things(3)...)
	r := w.worker(worker.Config{MaxAttempts: 3, RetryDelay: time.Millisecond}, func(real worker.Redis) worker.Redis {
		return refusing{real, "shop:thing:2"}
	})
	r.start(t)
	testenv.Eventually(t, "the row is dead-lettered", func() bool { return w.count("cache_outbox_dead") == 1 })
	if n := w.count("cache_outbox") + w.count("cache_outbox_delayed"); n != 0 {
		t.Errorf("%d rows wait", n)
	}
	checkDead(t, w, map[string][2]string{"2": {"redis_refused", `key "shop:thing:2": NOPERM`}})
	var attempts, first int
	if err := w.db.QueryRow("SELECT attempts, first_id FROM cache_outbox_dead").Scan(&attempts, &first); err != nil || attempts != 2 || first != 2 {
		t.Errorf("%d attempts counted before the last, first id %d, %v", attempts, first, err)
	}
}

// failing makes Redis unreachable on demand.
type failing struct {
	worker.Redis
	down *atomic.Bool
}

func (f failing) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	if f.down.Load() {
		return keyspace.Unlinked{}, &keyspace.Outage{State: "loading", Err: errors.New("LOADING")}
	}
	return f.Redis.Unlink(ctx, targets)
}

// Sentence 7: an outage counts against no row's attempts, is logged once when it begins and once
// when it ends, and shows in readyz.
func TestOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	var down atomic.Bool
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return failing{real, &down} })
	r.start(t)
	testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
	down.Store(true)
	w.set("shop:thing:1")
	w.enqueue(things(1)...)
	testenv.Eventually(t, "the outage is noticed", func() bool { return answerOf(r, "/readyz") == http.StatusServiceUnavailable })
	if answerOf(r, "/healthz") != http.StatusOK {
		t.Error("an outage makes the process look dead")
	}
	testenv.Eventually(t, "it is tried again", func() bool {
		return w.redis.Exists(t.Context(), "shop:thing:1").Val() == 1 && r.log.count("level=WARN") == 1
	})
	down.Store(false)
	testenv.Eventually(t, "the key goes", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "the worker is ready again", func() bool { return answerOf(r, "/readyz") == http.StatusOK })
	if r.log.count("outage: rows wait") != 1 || r.log.count("outage is over") != 1 {
		t.Errorf("log:\n%s", r.log)
	}
	if w.count("cache_outbox_delayed")+w.count("cache_outbox_dead") != 0 {
		t.Error("the outage was taken for the row's fault")
	}
}

func answerOf(r *running, path string) int {
	reply := httptest.NewRecorder()
	r.Health().Handler().ServeHTTP(reply, httptest.NewRequest(http.MethodGet, path, nil))
	return reply.Code
}

// /readyz contains the text of an error unchanged, for example an ACL rule.
func TestReadyzIsVerbatim(t *testing.T) {
	t.Parallel()
	r := newWorld(t, plainMap).worker(worker.Config{})
	r.Health().Down(errors.New("it lacks &cache:invalidate <x>"))
	reply := httptest.NewRecorder()
	r.Health().Handler().ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if !strings.Contains(reply.Body.String(), `"it lacks &cache:invalidate <x>"`) {
		t.Errorf("%s", reply.Body)
	}
}

// Sentence 9: a stop finishes the current batch. The batch is delayed inside UNLINK while the stop
// arrives.
func TestStopFinishesTheBatchInHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	slow := &holding{entered: make(chan struct{}), leave: make(chan struct{})}
	r := w.worker(worker.Config{BatchRows: 10}, func(real worker.Redis) worker.Redis { slow.Redis = real; return slow })
	w.set(texts(30, "shop:thing:%d")...)
	w.enqueue(things(30)...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-slow.entered
	cancel()
	close(slow.leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rows, keys, settled := w.count("cache_outbox"), len(w.left()), len(w.journalled()); rows != 20 || keys != 20 || settled != 10 {
		t.Errorf("%d rows, %d keys left, %d settled", rows, keys, settled)
	}
}

// holding stops the first Unlink until leave is closed.
type holding struct {
	worker.Redis
	entered, leave chan struct{}
	once           atomic.Bool
}

func (h *holding) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	if !h.once.Swap(true) {
		close(h.entered)
		<-h.leave
	}
	return h.Redis.Unlink(ctx, targets)
}

// The map is read again when its file changes; a broken one leaves the old in place, with one line
// in the log.
func TestMapReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	r := w.worker(worker.Config{})
	r.start(t)
	old := r.maps.Map().Version()
	w.writeMap("version: 1\nentities: {thing: {keys: [\"x:{nope}\"]}}\n")
	for range 3 {
		r.maps.Reload()
		testenv.Eventually(t, "the broken map is refused", func() bool { return r.log.count("the new map is refused") == 1 })
	}
	answers := func() int { return r.log.count("level=ERROR msg=\"the map is still refused, the old one stays\"") }
	testenv.Eventually(t, "who asks again is answered", func() bool { return answers() > 0 })
	was := answers()
	r.maps.Reload()
	testenv.Eventually(t, "each time", func() bool { return answers() > was })
	if n := metric(t, r, `unstale_map_reloads_total{result="refused"}`); n != 1 {
		t.Errorf("%v changed files were refused", n)
	}
	if r.maps.Map().Version() != old {
		t.Error("the broken map is in use")
	}
	w.writeMap(plainMap)
	for range 3 {
		r.maps.Reload()
		testenv.Eventually(t, "the good map is back", func() bool { return r.log.count("map loaded") == 1 })
	}
	testenv.Eventually(t, "who asks is answered", func() bool { return r.log.count("level=INFO msg=\"the map is unchanged\"") > 0 })
	w.writeMap("version: 1\nentities: {thing: {keys: [\"x:{nope}\"]}}\n")
	testenv.Eventually(t, "the broken map is refused again", func() bool { return r.log.count("the new map is refused") == 2 })
	w.set("shop:thing:1", "shop:renamed:2")
	w.enqueue(things(1)...)
	testenv.Eventually(t, "the old map still works", func() bool { return strings.Join(w.left(), " ") == "shop:renamed:2" })
	w.writeMap(strings.Replace(plainMap, "shop:thing", "shop:renamed", 1))
	testenv.Eventually(t, "the good map is loaded without a signal", func() bool { return r.maps.Map().Version() != old })
	w.enqueue(things(2)[1:]...)
	testenv.Eventually(t, "the new map works", func() bool { return len(w.left()) == 0 })
	if n := r.log.count("the new map is refused"); n != 2 {
		t.Errorf("refused %d times:\n%s", n, r.log)
	}
}

// A map that lacks entities which it had, or which the journal has, keeps their rows waiting and
// names them. Rows of an entity that was never known are dead-lettered immediately.
func TestEntityThatWasKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.set("shop:thing:1", "shop:thing:2", "shop:thing:3")
	w.enqueue(things(1)...)
	r := w.worker(worker.Config{RetryDelay: 10 * time.Millisecond})
	stop := r.start(t)
	testenv.Eventually(t, "the key goes", func() bool { return len(w.left()) == 2 })
	w.writeMap("version: 1\npublish: {channel: \"cache:invalidate\"}\nentities: {other: {keys: [\"shop:other:{id}\"]}}\n")
	r.maps.Reload()
	testenv.Eventually(t, "the log names what is gone", func() bool {
		return r.log.count("level=WARN msg=\"map loaded, and entities are gone from it") == 1 && r.log.count("gone=5 entities=\"[again held list tagged thing]\"") == 1
	})
	w.enqueue(things(2)[1:]...)
	w.enqueue(outbox.Invalidation{Entity: "planet", ID: "1"})
	delayed := func(part string) func() bool {
		return func() bool {
			return w.count("cache_outbox") == 0 &&
				w.count("cache_outbox_delayed WHERE reason = 'unknown_entity' AND error LIKE '%"+part+"%'") == 1
		}
	}
	testenv.Eventually(t, "the row waits", delayed("had it"))
	testenv.Eventually(t, "the log says so", func() bool { return r.log.count("rows are delayed") > 0 })
	// once the journal could be asked, in time
	testenv.Eventually(t, "what nobody knew is dead", func() bool {
		return w.count("cache_outbox_dead WHERE entity = 'planet'") == 1
	})
	if n := w.count("cache_outbox_dead"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	stop()
	// nothing to compare the map with but the journal
	again := w.worker(worker.Config{RetryDelay: 10 * time.Millisecond})
	again.start(t)
	testenv.Eventually(t, "the row still waits", delayed("settled within the last day"))
	w.writeMap(plainMap)
	again.maps.Reload()
	testenv.Eventually(t, "the row is carried", func() bool { return strings.Join(w.left(), " ") == "shop:thing:3" })
}

// The metrics count events by outcome and reason.
func TestMetrics(t *testing.T) {
	t.Parallel()
	// an unknown entity would be searched in the journal, which a busy machine delays
	w := newWorld(t, plainMap+"  planet: {params: [star], keys: [\"shop:planet:{id}:{star}\"]}\n")
	r := w.worker(worker.Config{GaugeSchedule: "@every 1s"})
	w.enqueue(append(things(3), outbox.Invalidation{Entity: "planet", ID: "1"})...)
	r.start(t)
	metrics := func() string {
		reply := httptest.NewRecorder()
		r.Metrics().Handler().ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return reply.Body.String()
	}
	for _, line := range []string{
		`unstale_rows_total{outcome="unlinked"} 3`, `unstale_rows_total{outcome="dead"} 1`, `unstale_rows_dead_total{reason="missing_parameter"} 1`,
		`unstale_rows_dead{reason="missing_parameter"} 1`, `unstale_rows_dead{reason="bad_parameter"} 0`, `unstale_batch_rows_sum 4`,
		`unstale_batch_seconds_count 1`, `unstale_up 1`, `unstale_rows_waiting 0`, `unstale_oldest_age_seconds 0`,
	} {
		testenv.Eventually(t, line, func() bool { return strings.Contains(metrics(), line+"\n") })
	}
}

// Jobs on the same schedule both run.
func TestEqualSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.exec("INSERT INTO cache_outbox_journal (worker, settled_at, row_count, map_version, hashes, body) VALUES ('old', '2020-01-01', 1, '', '', '')")
	w.exec("INSERT INTO cache_outbox_dead (entity, entity_id, first_id, attempts, reason, error, map_version, created_at) VALUES ('thing', '1', 1, 0, 'redis_refused', '', '', '2020-01-01')")
	w.exec("INSERT INTO cache_outbox_locks (name, token, minted_at) VALUES ('old', '', UTC_TIMESTAMP(6) - INTERVAL 31 DAY), ('young', '', UTC_TIMESTAMP(6) - INTERVAL 29 DAY)")
	r := w.worker(worker.Config{GaugeSchedule: "@every 1s", RetentionSchedule: "@every 1s"})
	r.start(t)
	testenv.Eventually(t, "the row of the old lock goes", func() bool { return metric(t, r, "unstale_lock_rows_deleted_total") == 1 })
	if n := w.count("cache_outbox_locks WHERE name = 'young'"); n != 1 {
		t.Errorf("%d rows of the young lock", n)
	}
	testenv.Eventually(t, "old batches go", func() bool { return w.count("cache_outbox_journal WHERE worker = 'old'") == 0 })
	testenv.Eventually(t, "the gauges are read", func() bool {
		reply := httptest.NewRecorder()
		r.Metrics().Handler().ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return strings.Contains(reply.Body.String(), "unstale_rows_dead{reason=\"redis_refused\"} 1\n")
	})
}
