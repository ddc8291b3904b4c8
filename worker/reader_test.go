package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// A reader keeps values in L1 as long as heartbeats of the worker arrive: a real worker, over a
// real Redis.
type reader struct {
	t   testing.TB
	c   *cache.Cache
	log *logBuffer
	row atomic.Pointer[string] // what the loader reads
}

// reader listens to the world's channel. Its period is long where it must not close for a busy
// machine, short where it is to close.
func (w *world) reader(period time.Duration, on ...redis.UniversalClient) *reader {
	w.t.Helper()
	if len(on) == 0 {
		o, err := redis.ParseURL(w.url)
		if err != nil {
			w.t.Fatal(err)
		}
		o.ContextTimeoutEnabled = true
		client := redis.NewClient(o)
		w.t.Cleanup(func() { _ = client.Close() })
		on = append(on, client)
	}
	source, err := outbox.Source(w.t.Context(), w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &reader{t: w.t, log: &logBuffer{}}
	r.c, err = cache.New(cache.Config{
		Redis: on[0], Prefix: "shop:", Timeout: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Memory: cache.Memory{Size: 100, Channel: w.channel, Sources: []string{source}, Period: period, MessageKeys: w.messageKeys},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = r.c.Close()
		if w.t.Failed() {
			w.t.Logf("the reader's log:\n%s", r.log)
		}
	})
	r.write("old")
	return r
}

func (r *reader) write(value string) { r.row.Store(&value) }

func (r *reader) open() {
	r.t.Helper()
	testenv.Eventually(r.t, "memory to open", func() bool { return r.c.Healthy() == nil })
}

// closed waits until the memory is closed, and checks that it was for a reason with part in it.
func (r *reader) closed(part string) {
	r.t.Helper()
	testenv.Eventually(r.t, "memory to close for "+part, func() bool {
		err := r.c.Healthy()
		return err != nil && strings.Contains(err.Error(), part)
	})
}

// get returns thing 1 and its source.
func (r *reader) get() (string, cache.Source) {
	r.t.Helper()
	got, err := cache.FetchResult(r.t.Context(), r.c, "thing:1", func(context.Context) (string, error) { return *r.row.Load(), nil }, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Value, got.Source
}

// keeps waits until the thing is given out of memory, and checks its value.
func (r *reader) keeps(want string) {
	r.t.Helper()
	testenv.Eventually(r.t, want+" from memory", func() bool {
		got, from := r.get()
		return got == want && from == cache.FromMemory
	})
}

// neverClosed checks that the memory has not been closed or emptied since it opened.
func (r *reader) neverClosed() {
	r.t.Helper()
	if got, from := r.get(); from != cache.FromMemory || r.log.count("memory is closed") != 0 {
		r.t.Errorf("got %s from %v; memory closed %d times", got, from, r.log.count("memory is closed"))
	}
}

// beats waits for n heartbeats that prove something, of epochs that are not named.
func (e *ear) beats(n int, not ...string) (last protocol.Message) {
	e.t.Helper()
	for n > 0 {
		m, err := protocol.DecodeMessage([]byte(e.raw()))
		if err != nil {
			e.t.Fatal(err)
		}
		if b := m.Beat; b != nil && !b.First && !b.Last && !strings.Contains(strings.Join(not, " "), m.Epoch) {
			last = m
			n--
		}
	}
	return last
}

// wantBound reads a value from memory after each of three heartbeats. The value has been "old"
// since committed, which must not be longer than behind says, and a second. One heartbeat may be
// late on a busy machine, so the other two decide.
func (w *world) wantBound(r *reader, committed time.Time) {
	w.t.Helper()
	e := w.listen()
	var beyond []string
	for range 3 {
		behind := time.Duration(e.beats(1).Beat.Behind) * time.Millisecond
		got, from := r.get()
		age := time.Since(committed)
		if got != "old" || from != cache.FromMemory {
			w.t.Fatalf("got %s from %v", got, from)
		}
		if age > behind+time.Second {
			beyond = append(beyond, fmt.Sprintf("%s, behind said %s", age, behind))
		}
	}
	if len(beyond) > 1 {
		w.t.Errorf("memory gave out a value as old as %q", beyond)
	}
}

// Sentence 17: L1 opens when heartbeats of a worker arrive, follows its unlinks, and closes while
// the workers are paused and when the only one is stopped.
func TestReaderHearsTheWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(time.Second)
	stop := w.worker(worker.Config{}).start(t)
	c.open()
	c.keeps("old")
	c.write("new")
	w.enqueue(things(1)...)
	c.keeps("new")
	w.exec("INSERT INTO cache_outbox_control (name, who, reason, began_at) VALUES ('pause', 'a test', '', UTC_TIMESTAMP(6))")
	c.closed("no heartbeat")
	w.exec("DELETE FROM cache_outbox_control")
	c.open()
	c.keeps("new")
	stop()
	c.closed("no heartbeat")
}

// behindLink puts a MySQL of the test's own in the place of the world's, and a link that can be
// disturbed between it and the workers.
func (w *world) behindLink() *servers.Link {
	w.t.Helper()
	server := testenv.OwnMySQL(w.t)
	link, err := servers.NewLink("mysql", server.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(link.Close)
	if w.db, err = sql.Open("mysql", server.DSN("")); err != nil {
		w.t.Fatal(err)
	}
	w.exec("CREATE DATABASE shop")
	w.exec("CREATE USER 'unstale'@'%' IDENTIFIED BY 'secret'")
	w.exec("GRANT ALL ON shop.* TO 'unstale'@'%'")
	_ = w.db.Close()
	if w.db, err = sql.Open("mysql", server.DSN("shop")); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.db.Close() })
	schematest.Up(w.t, w.db)
	w.dsn = "unstale:secret@tcp(" + link.Addr() + ")/shop"
	return link
}

// Sentence 17: no heartbeat is sent while MySQL does not answer, or refuses.
func TestReaderClosesWithoutMySQL(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*servers.Link) error{
		"refused": func(l *servers.Link) error { l.Close(); return nil }, "swallowed": (*servers.Link).Swallow,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, plainMap)
			link := w.behindLink()
			c := w.reader(time.Second)
			r := w.worker(worker.Config{})
			r.start(t)
			c.open()
			if err := disturb(link); err != nil {
				t.Fatal(err)
			}
			c.closed("no heartbeat")
			testenv.Eventually(t, "the log", func() bool { return r.log.count("heartbeats are withheld, so readers keep nothing in memory") > 0 })
			link.Calm(t.Context())
			if err := link.Cut(); err != nil {
				t.Fatal(err)
			}
			c.open()
			testenv.Eventually(t, "the log", func() bool { return r.log.count("heartbeats are sent again") == 1 })
		})
	}
}

// A rolling deployment does not empty L1: messages of the new worker count from the first one on,
// and the old one sends a final message.
func TestReaderStaysOpenOverADeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(5 * time.Second)
	e := w.listen()
	stop := w.worker(worker.Config{}).start(t)
	old := e.beats(1)
	c.open()
	c.keeps("old")
	w.worker(worker.Config{}).start(t)
	e.beats(1, old.Epoch)
	stop()
	m := e.next()
	for ; m.Epoch != old.Epoch || m.Beat == nil || !m.Beat.Last; m = e.next() {
		if m.Beat == nil {
			t.Errorf("heard %+v", m)
		}
	}
	e.beats(4, old.Epoch)
	c.neverClosed()
}

// next returns the next message, decoded.
func (e *ear) next() protocol.Message {
	e.t.Helper()
	m, err := protocol.DecodeMessage([]byte(e.raw()))
	if err != nil {
		e.t.Fatal(err)
	}
	return m
}

// One-shot work is not awaited, and its final message proves that nothing of it was missed.
func TestReaderHearsADrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(5 * time.Second)
	e := w.listen()
	w.worker(worker.Config{IdleInterval: 900 * time.Millisecond}).start(t)
	old := e.beats(1)
	c.open()
	c.keeps("old")
	config, err := mysql.ParseDSN(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	at, err := redisurl.Parse(w.url, false)
	if err != nil {
		t.Fatal(err)
	}
	drain, err := worker.New(worker.Config{MySQL: config, Redis: at, MapFile: w.mapFile, MapEnv: mapEnv, RedisTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for heard := false; !heard; { // the other worker may be faster
		w.enqueue(things(2)[1:]...)
		r, err := drain.Drain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard = r.Messages > 0
	}
	first, last := e.next(), protocol.Message{}
	for first.Epoch == old.Epoch {
		first = e.next()
	}
	for last.Epoch != first.Epoch {
		last = e.next()
	}
	if first.Seq != 1 || first.Beat != nil || last.Seq != 2 || last.Beat == nil || !last.Beat.Last {
		t.Errorf("heard %+v and %+v", first, last)
	}
	e.beats(2)
	c.neverClosed()
}

// Sentence 17: heartbeats continue during a batch, and end when the loop is stuck.
func TestReaderAndALongBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(time.Second)
	held, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held); <-release })
	w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return watching{real, func([]keyspace.Target) { hold() }}
	}).start(t)
	c.open()
	e := w.listen()
	w.enqueue(things(2)[1:]...)
	<-held
	e.beats(2)
	c.closed("no heartbeat")
	close(release)
	c.open()
}

// A beatWitness is asked before each heartbeat.
type beatWitness struct {
	worker.Redis
	beat   func()
	unlink func()
}

func (w beatWitness) Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error {
	w.beat()
	return w.Redis.Beat(ctx, channel, moved, withheld, asOf)
}

func (w beatWitness) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	w.unlink()
	return w.Redis.Unlink(ctx, targets)
}

// Sentence 17: a Redis that is back with older data gets no heartbeat before it is healed.
func TestNoHeartbeatBeforeHealing(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set("shop:thing:7")
	var healing atomic.Bool
	release := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return beatWitness{real, func() {
			if n, err := w.redis.Exists(t.Context(), "shop:thing:7").Result(); n > 0 && err == nil && healing.Load() {
				t.Error("a heartbeat before what was lost is unlinked again")
			}
		}, func() {
			if healing.Load() {
				<-release
			}
		}}
	})
	past.remember()
	r.start(t)
	t.Cleanup(goOn) // before the worker stops, which waits for its batch
	c := w.reader(time.Second)
	c.open()
	w.enqueue(things(7)[6:]...)
	testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 }) // else it is tried again, and nothing is lost
	wantLeft(t, w)
	healing.Store(true)
	past.goBack()
	testenv.Eventually(t, "heartbeats to be withheld until Redis is healed", func() bool {
		return r.log.count("not healed yet") > 0 // an outage can be logged first, if Redis restarts slowly
	})
	if c.c.Healthy() == nil {
		t.Error("memory is open")
	}
	goOn()
	c.open()
	wantLeft(t, w)
}

// A worker whose channel changes announces it on the old one, and publishes on both: the reader
// follows, and misses nothing.
func TestReaderFollowsToAnotherChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(time.Second)
	r := w.worker(worker.Config{})
	stop := r.start(t)
	c.open()
	c.keeps("old")
	elsewhere := &world{t: t, channel: w.channel + ":2", redis: w.redis}
	e, e2 := w.listen(), elsewhere.listen()
	w.writeMap(strings.ReplaceAll(plainMap, "cache:invalidate", elsewhere.channel))
	r.maps.Reload()
	for m := e.next(); m.Beat == nil || m.Beat.Moved != elsewhere.channel; m = e.next() {
	}
	c.open()
	c.keeps("old")
	c.write("new")
	w.enqueue(things(1)...)
	c.keeps("new")
	for _, ear := range []*ear{e, e2} {
		if keys, _ := ear.heard(1); keys[0] != "shop:thing:1" {
			t.Errorf("heard %q", keys)
		}
	}
	// The next worker knows the new channel alone.
	stop()
	c.closed("no heartbeat")
	w.worker(worker.Config{}).start(t)
	c.open()
	c.keeps("new")
	c.write("newer")
	w.enqueue(things(1)...)
	c.keeps("newer")
}

// The array format has no room for heartbeats: a worker that changes to it sends a final message,
// and L1 closes.
func TestReaderClosesForTheArrayFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(time.Second)
	r := w.worker(worker.Config{})
	r.start(t)
	c.open()
	e := w.listen()
	w.writeMap(strings.Replace(plainMap, `channel: "cache:invalidate"`, `channel: "cache:invalidate", format: array`, 1))
	r.maps.Reload()
	for m := e.next(); m.Beat == nil || !m.Beat.Last; m = e.next() {
	}
	c.closed("no heartbeat")
	w.enqueue(things(1)...)
	if text := e.raw(); text != `["shop:thing:1"]` {
		t.Errorf("heard %s", text)
	}
	if metric(t, r, "unstale_heartbeat") != 0 || metric(t, r, "unstale_heartbeats_total") == 0 {
		t.Error("the metrics do not tell")
	}
	w.writeMap(plainMap)
	r.maps.Reload()
	c.open()
}

// A worker that cannot determine the source of its outbox logs it, and processes rows nevertheless.
func TestHeartbeatsNeedTheSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := w.reader(time.Second)
	var id string
	if err := w.db.QueryRow("SELECT id FROM cache_outbox_source").Scan(&id); err != nil {
		t.Fatal(err)
	}
	w.exec("RENAME TABLE cache_outbox_source TO hidden")
	r := w.worker(worker.Config{})
	r.start(t)
	w.set("shop:thing:2")
	w.enqueue(things(2)[1:]...)
	testenv.Eventually(t, "the key goes", func() bool { return len(w.left()) == 0 })
	testenv.Eventually(t, "the log", func() bool { return r.log.count("unstale migrate up") == 1 })
	w.exec("RENAME TABLE hidden TO cache_outbox_source")
	c.open()
	if m := w.listen().beats(1); m.Beat.Source != id || m.Beat.Lease != r.maps.Map().Lease().Milliseconds() {
		t.Errorf("heard %+v of outbox %s", m.Beat, id)
	}
}
