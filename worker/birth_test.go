package worker_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// birth returns the unlink time of the journal's only batch with rows.
func birth(t *testing.T, w *world) (born int64) {
	t.Helper()
	var n int
	if err := w.db.QueryRow("SELECT COUNT(*), MAX(born_us) FROM cache_outbox_journal WHERE row_count > 0").Scan(&n, &born); err != nil || n != 1 {
		t.Fatalf("%d batches, %v", n, err)
	}
	return born
}

// redisTime returns the time by the server's clock, in microseconds.
func redisTime(t *testing.T, w *world) int64 {
	t.Helper()
	now, err := w.redis.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMicro()
}

func wantBirth(t *testing.T, w *world, from int64) {
	t.Helper()
	if born, now := birth(t, w), redisTime(t, w); born < from || born > now {
		t.Errorf("born at %d, wanted %d to %d", born, from, now)
	}
}

// The journal has a time by the clock of Redis since when no older entry can exist under the keys
// of a batch: since they were unlinked, or unlinked again.
func TestBirthIsJournalled(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.set("shop:thing:1")
	past.remember()
	w.enqueue(things(1)...)
	before := redisTime(t, w)
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w)
	wantBirth(t, w, before)

	past.goBack()
	before = redisTime(t, w)
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w)
	wantBirth(t, w, before)
}

// The message about a key has the time of the journal, of a batch that is healed too.
func TestMessagesTellTheUnlinkTime(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	told := func(carry func()) int64 {
		t.Helper()
		sub := w.redis.Subscribe(t.Context(), w.channel)
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		carry()
		got, err := sub.ReceiveTimeout(t.Context(), 30*time.Second)
		m, ok := got.(*redis.Message)
		if err != nil || !ok {
			t.Fatalf("%v: %v", got, err)
		}
		decoded, err := protocol.DecodeMessage([]byte(m.Payload))
		if err != nil || len(decoded.Keys) != 1 {
			t.Fatalf("%s: %v", m.Payload, err)
		}
		return int64(decoded.Unlinked)
	}
	w.set("shop:thing:1") // or nothing of an empty Redis would have to be unlinked again
	past.remember()
	w.enqueue(things(1)...)
	before := redisTime(t, w)
	first := told(func() { w.worker(worker.Config{}).drain(t) })
	if first != birth(t, w) || first < before {
		t.Errorf("the message says %d, the journal %d", first, birth(t, w))
	}
	past.goBack()
	if again := told(func() { w.worker(worker.Config{}).drain(t) }); again != birth(t, w) || again <= first {
		t.Errorf("after healing the message says %d, the journal %d, and before that %d", again, birth(t, w), first)
	}
}

// An account without +time settles rows too.
func TestNoBirthWithoutTheRight(t *testing.T) {
	t.Parallel()
	w, _ := aWorldInTime(t)
	w.set("shop:thing:1")
	if err := w.redis.Do(t.Context(), "acl", "setuser", "default", "-time").Err(); err != nil {
		t.Fatal(err)
	}
	w.enqueue(things(1)...)
	w.worker(worker.Config{}).drain(t)
	wantLeft(t, w)
	if born := birth(t, w); born != 0 {
		t.Errorf("born at %d", born)
	}
}
