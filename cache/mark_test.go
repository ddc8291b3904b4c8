package cache

import (
	"testing"
	"time"
)

// A value that was requested while L1 was closed, or before, does not enter L1 after it has opened.
func TestMarksFromBeforeOpening(t *testing.T) {
	t.Parallel()
	m := newMemory(Config{Memory: Memory{Size: 10}}.WithDefaults())
	t.Cleanup(m.close)
	closed := m.mark()
	m.obey(verdict{open: true})
	if m.put("k", "old", nil, closed, time.Hour, 0, nil) {
		t.Error("a value that was asked for before anything was heard is kept")
	}
	opened := m.mark()
	m.obey(verdict{why: errNotListening})
	m.obey(verdict{open: true})
	if m.put("k", "old", nil, opened, time.Hour, 0, nil) || !m.doubted(opened) {
		t.Error("a value that was asked for before the memory closed is kept")
	}
	if !m.put("k", "new", nil, m.mark(), time.Hour, 0, nil) {
		t.Error("nothing is kept")
	}
}

// Messages that arrive while L1 closes do not reopen it, and no value enters it.
func TestClosedMemoryStaysClosed(t *testing.T) {
	t.Parallel()
	m := newMemory(Config{Memory: Memory{Size: 10}}.WithDefaults())
	m.obey(verdict{open: true})
	mark := m.mark()
	m.close()
	m.close()
	if changed, _ := m.obey(verdict{open: true}); changed || m.healthy() != ErrClosed {
		t.Errorf("the memory is open again, and says %v", m.healthy())
	}
	if m.put("k", "v", nil, mark, time.Hour, 0, nil) || m.put("k", "v", nil, m.mark(), time.Hour, 0, nil) {
		t.Error("a value is kept")
	}
}
