package cache

import (
	"errors"
	"testing"
	"time"

	"github.com/unstale/unstale/protocol"
)

// One old entry may come from a failover. Another one counts only after a later message, and only
// if no message was missed between them.
func TestUnlinkedElsewhere(t *testing.T) {
	t.Parallel()
	start := time.Now()
	const unlinked = 1_700_000_000_000_000
	old := int64(unlinked - unlinkMargin.Microseconds() - 1)
	heard := func(m *memory, after time.Duration) mark {
		a := &arrival{at: start.Add(after), message: protocol.Message{Keys: []string{"p:k0"}, Unlinked: unlinked}}
		m.evictAndLog(a.message.Keys, nil)
		m.unlinks.rememberUnlinks(a, m.mark())
		return m.mark()
	}
	read := func(m *memory, since mark, birth int64, after time.Duration) error {
		return m.unlinks.checkAt("p:k0", birth, since, start.Add(after))
	}
	memoryOf := func() *memory {
		m := sweptMemory(t, 1)
		m.unlinks = newUnlinkWatch(Config{Memory: Memory{Period: time.Second}})
		return m
	}
	want := func(what string, m *memory, after time.Duration, total uint64, want error) {
		t.Helper()
		if err := m.unlinks.elsewhereLately(start.Add(after)); !errors.Is(err, want) || m.unlinks.total.Load() != total {
			t.Errorf("%s: %v, %d old entries, wanted %v, %d", what, err, m.unlinks.total.Load(), want, total)
		}
	}

	m := memoryOf()
	before := m.mark()
	since := heard(m, 0)
	_ = read(m, before, old, 0)
	_ = read(m, since, old+1, 0)
	_ = m.unlinks.checkAt("p:other", old, since, start)
	want("read before the message, within the margin, another key", m, 0, 0, nil)

	_ = read(m, since, old, time.Second)
	_ = read(m, since, old, 30*time.Second)
	// a failover may have been between message and read
	_ = read(m, heard(m, 10*time.Second), old, 40*time.Second)
	want("messages from before or soon after the first one", m, 40*time.Second, 3, nil)
	if err := read(m, heard(m, 12*time.Second), old, 41*time.Second); !errors.Is(err, ErrUnlinkedElsewhere) {
		t.Errorf("nothing to log: %v", err)
	}
	if err := read(m, heard(m, 13*time.Second), old, 42*time.Second); err != nil {
		t.Errorf("logged again: %v", err)
	}
	want("confirmed", m, 43*time.Second, 5, ErrUnlinkedElsewhere)
	want("long ago", m, 42*time.Second+elsewhereShown, 5, nil)

	m = memoryOf()
	_ = read(m, heard(m, 0), old, 0)
	late := confirmedWithin + time.Minute
	_ = read(m, heard(m, late), old, late)
	want("two failovers", m, late, 2, nil)

	m = memoryOf()
	since = heard(m, 0)
	m.obey(verdict{empty: true, open: true})
	_ = read(m, m.mark(), old, 0)
	_ = read(m, since, old, 0) // whose mark is from before the possible gap
	want("something was missed", m, 0, 1, nil)

	m = memoryOf()
	rejected := &arrival{at: start, message: protocol.Message{Keys: []string{"p:k0"}, Unlinked: unlinked}, rejected: errors.New("no MAC")}
	m.unlinks.rememberUnlinks(rejected, m.mark())
	if m.unlinks.some.Load() {
		t.Error("a rejected message counts")
	}
}
