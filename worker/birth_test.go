package worker_test

import (
	"testing"

	"github.com/unstale/unstale/worker"
)

// birth is that of the journal's only batch that has rows.
func birth(t *testing.T, w *world) (born int64) {
	t.Helper()
	var n int
	if err := w.db.QueryRow("SELECT COUNT(*), MAX(born_us) FROM cache_outbox_journal WHERE row_count > 0").Scan(&n, &born); err != nil || n != 1 {
		t.Fatalf("%d batches, %v", n, err)
	}
	return born
}

// redisTime is the time by the server's clock, in microseconds.
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

// The journal says from when by Redis' clock nothing older can be under a batch's keys: since it was unlinked, or
// unlinked again.
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

// An account from before there were births settles all the same.
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
