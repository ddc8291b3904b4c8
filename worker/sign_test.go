package worker_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// signing has a worker sign its messages.
func (w *world) signing(key string) func(worker.Redis) worker.Redis {
	return func(worker.Redis) worker.Redis {
		at, err := redisurl.Parse(w.url, false)
		if err != nil {
			w.t.Fatal(err)
		}
		k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: 5 * time.Second, BeaconTTL: time.Hour, MessageKey: protocol.MessageKey(key)})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = k.Close() })
		return worker.NewRedis(k)
	}
}

// During a rotation a worker with the old key and one with the new key serve the same reader.
func TestReaderAcceptsBothKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.messageKeys = []protocol.MessageKey{protocol.MessageKey("the new message key"), protocol.MessageKey("the old message key")}
	c := w.reader(5 * time.Second)
	stop := w.worker(worker.Config{}, w.signing("the old message key")).start(t)
	c.open()
	w.worker(worker.Config{}, w.signing("the new message key")).start(t)
	c.keeps("old")
	c.write("new")
	w.enqueue(things(1)...)
	c.keeps("new")
	stop()
	c.write("newer")
	w.enqueue(things(1)...)
	c.keeps("newer")
	c.neverClosed()
	if n := c.c.Statistics().Rejected; n != 0 {
		t.Errorf("%d messages rejected", n)
	}
}
