package cache

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// sweptMemory returns an open L1 with values k0, k1 and so on, each with its own tag.
func sweptMemory(t *testing.T, values int) *memory {
	t.Helper()
	m := newMemory(Config{Prefix: "p:", Memory: Memory{Size: 10 * values}}.WithDefaults())
	t.Cleanup(m.close)
	m.obey(verdict{open: true})
	for i := range values {
		if !m.put(fmt.Sprint("k", i), i, []string{fmt.Sprint("t", i)}, m.mark(), time.Hour, 0, nil) {
			t.Fatal("a value is not kept")
		}
	}
	return m
}

func globs(t *testing.T, n int, format string) []protocol.Glob {
	t.Helper()
	all := make([]protocol.Glob, n)
	for i := range all {
		var err error
		if all[i], err = protocol.CompileGlob(fmt.Sprintf(format, i)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// One pass removes the matches of the patterns, including tag versions.
func TestSweep(t *testing.T) {
	t.Parallel()
	m := sweptMemory(t, 100)
	all := append(globs(t, 3, "p:k%d?"), globs(t, 10, "stamp:t9%d")...)
	before := m.mark()
	m.sweep(all, m.evictAndLog([]string{"p:k50", "stamp:t51", "other:k52"}, all))
	for i := range 100 {
		_, kept := m.get(fmt.Sprint("k", i), nil)
		if gone := i >= 10 && i < 30 || i >= 90 || i == 50 || i == 51; kept == gone {
			t.Errorf("k%d: kept %v", i, kept)
		}
	}
	for key, kept := range map[string]bool{"k11": false, "k50": false, "k60": true} {
		if m.put(key, 0, nil, before, time.Hour, 0, nil) != kept {
			t.Errorf("%s, asked for before: kept %v", key, !kept)
		}
	}
	if m.waiting != 0 || m.gate.current.Load() != 1 {
		t.Errorf("%d patterns wait, generation %d", m.waiting, m.gate.current.Load())
	}
}

// If there is too much to match, L1 is emptied immediately and stays open. Patterns that match no
// name here cost nothing.
func TestSweepOfTooMuch(t *testing.T) {
	t.Parallel()
	const values = 1000
	m := sweptMemory(t, values) // and as many tags
	size := func() int { return m.values.store.EstimatedSize() }
	m.evictAndLog(nil, globs(t, 1000, "elsewhere:%d:*"))
	first := m.evictAndLog(nil, globs(t, 300, "p:%d:*"))
	if size() != values {
		t.Fatalf("%d values", size())
	}
	second := m.evictAndLog(nil, globs(t, 300, "p:%d:*")) // together too much
	if size() != 0 || m.gate.open.Load() != 2 || m.waiting != 0 {
		t.Errorf("%d values, generation %d is open, %d patterns wait", size(), m.gate.open.Load(), m.waiting)
	}
	if !m.put("5:x", 0, nil, m.mark(), time.Hour, 0, nil) {
		t.Error("memory keeps nothing")
	}
	for _, generation := range []uint64{first, second} {
		m.sweep(globs(t, 300, "p:%d:*"), generation)
	}
	if _, kept := m.get("5:x", nil); !kept {
		t.Error("a value that came later is swept")
	}
}

// A shut L1 stays shut when an earlier verdict arrives, and then begins a new generation.
func TestShutMemory(t *testing.T) {
	t.Parallel()
	m := sweptMemory(t, 1)
	mark := m.mark()
	m.gate.open.Store(0) // as watch does
	if _, kept := m.get("k0", nil); kept || m.put("k", 0, nil, mark, time.Hour, 0, nil) || m.healthy() != errShut || !m.wasShut() {
		t.Errorf("it is not shut: %v", m.healthy())
	}
	m.obey(verdict{open: true})
	m.obey(verdict{open: true, empty: true})
	m.clear()
	if m.gate.open.Load() != 0 || !m.wasShut() {
		t.Error("it is open again")
	}
	m.obey(verdict{empty: true, why: errNotListening})
	if m.wasShut() || m.healthy() != errNotListening {
		t.Errorf("closed by the subscription: %v", m.healthy())
	}
	m.obey(verdict{open: true})
	if _, kept := m.get("k0", nil); kept || m.healthy() != nil {
		t.Errorf("opened again: kept %v, %v", kept, m.healthy())
	}
}

// A backlog is bounded: one arrival represents the messages that found no room. An event that is
// not a message always finds room.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	b := newBacklog()
	now := time.Now()
	message := func() *arrival {
		return &arrival{at: now, got: &redis.Message{}, message: protocol.Message{Keys: make([]string, 999)}}
	}
	added := 0
	for ; b.size+1000 <= longestBacklog; added++ {
		b.push(message())
	}
	b.push(message())
	b.push(message())
	b.push(&arrival{at: now, got: &redis.Pong{}})
	if n := len(b.waiting); n != added+2 || b.waiting[added].fault != errBacklog {
		t.Fatalf("%d arrivals wait, wanted %d", n, added+2)
	}
	for _, c := range []struct {
		age  time.Duration
		late bool
	}{{longestWait, false}, {longestWait + 1, true}} {
		if b.late(now.Add(c.age)) != c.late {
			t.Errorf("after %v: late %v", c.age, !c.late)
		}
	}
	for range added + 2 {
		<-b.ready
		b.done()
	}
	if b.size != 0 || !b.empty() || b.late(now.Add(time.Hour)) {
		t.Errorf("%d of size are left", b.size)
	}
	b.setArrival(now)
	if b.empty() || !b.late(now.Add(longestWait+1)) {
		t.Error("what is being read does not count")
	}
	b.close()
	if b.push(message()) {
		t.Error("a closed backlog takes more")
	}
}

// Nothing waits for a sweep: values are put while it matches keys and tags.
func TestPutDuringSweep(t *testing.T) {
	t.Parallel()
	m := sweptMemory(t, 10*sweepChunk)
	generation := m.evictAndLog(nil, nil)
	n := 0
	matched := func(name string) bool {
		n++
		if !m.put(fmt.Sprint("new", n), n, []string{"new"}, m.mark(), time.Hour, 0, nil) {
			t.Errorf("while %s is matched: nothing is kept", name)
		}
		return name == "p:k5" || name == protocol.StampKey("t7")
	}
	if !m.sweepKeys(matched, generation) || !m.sweepTags(matched, generation) {
		t.Error("a sweep ended early")
	}
	if n < 20*sweepChunk {
		t.Errorf("%d names were matched", n)
	}
	for key, want := range map[string]bool{"k5": false, "k6": true, "k7": false, "new1": true} {
		if _, kept := m.get(key, nil); kept != want {
			t.Errorf("%s: kept %v", key, kept)
		}
	}
	m.clear()
	if m.sweepKeys(matched, generation) != true || m.sweepTags(matched, generation) != true {
		t.Error("an empty memory has something to sweep")
	}
	m.put("k5", 0, []string{"t7"}, m.mark(), time.Hour, 0, nil)
	if m.sweepKeys(matched, generation) || m.sweepTags(matched, generation) {
		t.Error("a sweep of another generation went on")
	}
	if _, kept := m.get("k5", []string{"t7"}); !kept {
		t.Error("a value of another generation is swept")
	}
}

// A read is kept only if few patterns came during it: each is matched while messages wait. Patterns
// that mean nothing here do not count.
func TestPutAfterManyGlobs(t *testing.T) {
	t.Parallel()
	m := sweptMemory(t, 1)
	before := m.mark()
	m.evictAndLog(nil, globs(t, mostGlobs+1, "elsewhere:%d:*"))
	m.evictAndLog(nil, globs(t, mostGlobs, "p:%d:*"))
	if !m.put("k", 0, nil, before, time.Hour, 0, nil) {
		t.Errorf("after %d patterns: not kept", mostGlobs)
	}
	m.evictAndLog(nil, globs(t, 1, "p:%d:*"))
	if m.put("k", 0, nil, before, time.Hour, 0, nil) || m.overflow.total.Load() != 1 {
		t.Errorf("after one more: kept, or %d overflows", m.overflow.total.Load())
	}
	if !m.put("k", 0, nil, m.mark(), time.Hour, 0, nil) {
		t.Error("a later read is not kept")
	}
}

// While something is late, watch shuts L1 without its mutex.
func TestWatchTakesNoMutex(t *testing.T) {
	t.Parallel()
	m := sweptMemory(t, 1)
	b := newBacklog()
	b.push(&arrival{at: time.Now().Add(-2 * longestWait), got: &redis.Message{}})
	m.mu.Lock()
	ended := make(chan struct{})
	go func() { defer close(ended); m.gate.watch(b) }()
	testenv.Eventually(t, "memory to shut", func() bool { return m.gate.open.Load() == 0 })
	if _, kept := m.get("k0", nil); kept {
		t.Error("a value is given out")
	}
	m.mu.Unlock()
	b.close()
	<-ended
}
