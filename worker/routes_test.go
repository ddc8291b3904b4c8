package worker_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// another returns the world as a worker or a reader of another channel has it.
func (w *world) another() *world {
	w.t.Helper()
	other := *w
	other.channel, other.mapFile = w.channel+":2", filepath.Join(w.t.TempDir(), "mapping.yaml")
	other.writeMap(plainMap)
	return &other
}

// hears waits until a row of thing n, which is enqueued now, was announced on all channels.
func (w *world) hears(n int, all ...*ear) {
	w.t.Helper()
	w.enqueue(things(n)[n-1:]...)
	for _, e := range all {
		if keys, _ := e.heard(1); keys[0] != fmt.Sprint("shop:thing:", n) {
			w.t.Errorf("heard %q, wanted thing %d", keys, n)
		}
	}
}

// Sentence 17: in a rolling restart to another channel, each worker publishes on both, so readers of
// either open and miss nothing, whichever worker takes the rows. When the worker of a channel has
// stopped, its readers close, and those of the other channel stay open.
func TestReaderOverARolloutToAnotherChannel(t *testing.T) {
	t.Parallel()
	from := newWorld(t, plainMap)
	to := from.another()
	before, after := from.reader(5*time.Second), to.reader(5*time.Second)
	e, e2 := from.listen(), to.listen()
	stop := from.worker(worker.Config{}).start(t)
	before.open()
	next := to.worker(worker.Config{})
	next.start(t)
	after.open()
	withheld := next.log.count("heartbeats are withheld") // until the first worker has followed
	for n := range 10 {
		from.hears(n+1, e, e2)
	}
	for _, c := range []*reader{before, after} {
		c.open()
		c.keeps("old")
		c.write("new")
	}
	from.enqueue(things(1)...)
	before.keeps("new")
	after.keeps("new")
	stop()
	for m := e.next(); m.Beat == nil || !strings.Contains(m.Beat.Withheld, "no living worker has a map with this channel"); m = e.next() {
	}
	after.neverClosed()
	before.keeps("new") // it has followed the next worker
	if next.log.count("heartbeats are withheld") != withheld {
		t.Error("heartbeats of the own channel were withheld")
	}
}

// livesWith keeps the record of a worker of an earlier release, which does not list its channels.
func (w *world) livesWith(state, channel, format string) {
	w.t.Helper()
	w.exec(`REPLACE INTO cache_outbox_workers (id, name, state, since, map_version, channel, format, seen_at)
VALUES ('earlier', 'web-1', ?, UTC_TIMESTAMP(6), '', ?, ?, UTC_TIMESTAMP(6) + INTERVAL 9 SECOND)`, state, channel, format)
}

// Sentence 17: no heartbeat is sent where a living worker does not publish, so readers stay closed
// and name that worker. A worker of an earlier release publishes on the channel of its map alone.
func TestReaderWaitsForTheOtherWorkers(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"event", "array"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			from := newWorld(t, plainMap)
			to := from.another()
			e, e2 := from.listen(), to.listen()
			c := to.reader(time.Second)
			from.livesWith("working", from.channel, format)
			r := to.worker(worker.Config{})
			r.start(t)
			c.closed(fmt.Sprintf("withhold heartbeats: worker \"web-1\" publishes only on %q (format %s)", from.channel, format))
			from.enqueue(things(1)...)
			if format == "array" {
				if text := e.raw(); text != `["shop:thing:1"]` {
					t.Errorf("heard %s", text)
				}
			} else if keys, _ := e.heard(1); keys[0] != "shop:thing:1" {
				t.Errorf("heard %q", keys)
			}
			if keys, _ := e2.heard(1); keys[0] != "shop:thing:1" {
				t.Errorf("heard %q", keys)
			}
			testenv.Eventually(t, "the log", func() bool { return r.log.count("not all workers publish on this channel") == 1 })
			if c.c.Healthy() == nil || metric(t, r, "unstale_heartbeat") != 0 {
				t.Error("memory opened, or the metric does not tell")
			}
			from.livesWith("stopped", from.channel, format)
			c.open()
			c.keeps("old")
		})
	}
}

// A worker whose account may not publish on the channel of another worker works on. Nobody sends
// heartbeats there, until it may.
func TestReaderAndARefusedChannel(t *testing.T) {
	t.Parallel()
	from := newWorld(t, plainMap)
	server := from.onOwnRedis()
	to := from.another()
	user := func(rules ...any) {
		t.Helper()
		if err := from.redis.Do(t.Context(), append([]any{"acl", "setuser", "worker"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("on", ">secret", "~*", "+@all", "resetchannels", "&"+to.channel)
	before, after := from.reader(time.Second), to.reader(time.Second)
	first := from.worker(worker.Config{})
	first.start(t)
	before.open()
	to.url = "redis://worker:secret@" + server.Addr()
	r := to.worker(worker.Config{})
	r.start(t)
	before.closed(`worker "test" publishes only on`)
	after.open()
	e2 := to.listen()
	for n := range 5 {
		from.hears(n+1, e2)
	}
	if err := r.Health().Ready(); err != nil || r.log.count("outage: rows wait") != 0 || r.log.count("redis refuses the channel of another worker") != 1 {
		t.Errorf("ready: %v", err)
	}
	// a right that is taken away later
	user("&" + from.channel)
	r.Allow()
	before.open()
	user("resetchannels", "&"+to.channel)
	from.hears(6, e2)
	testenv.Eventually(t, "the log", func() bool { return first.log.count("not all workers publish on this channel") == 2 })
	before.open() // it has followed to the other channel
	before.write("new")
	from.enqueue(things(1)...)
	before.keeps("new")
	if err := r.Health().Ready(); err != nil || r.log.count("redis refuses the channel of another worker") != 1 {
		t.Errorf("ready: %v", err)
	}
}

// A worker that was frozen between an UNLINK and its message learns of the channels of other workers
// first. A worker without a record, such as a drain, looks at each message.
func TestChannelsAreReadBeforeAMessage(t *testing.T) {
	t.Parallel()
	from := newWorld(t, plainMap)
	to := from.another()
	e, e2 := from.listen(), to.listen()
	to.livesWith("working", to.channel, "event")
	var r *running
	r = from.worker(worker.Config{}, func(real worker.Redis) worker.Redis {
		return watching{real, func([]keyspace.Target) { r.Thaw() }}
	})
	from.enqueue(things(1)...)
	r.drain(t)
	for _, ear := range []*ear{e, e2} {
		if keys, _ := ear.heard(1); keys[0] != "shop:thing:1" {
			t.Errorf("heard %q", keys)
		}
	}
	to.livesWith("working", to.channel, "event")
	r.start(t)
	from.hears(2, e, e2)
}
