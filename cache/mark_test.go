package cache

import (
	"testing"
	"time"
)

// What was asked for while the memory was closed, or before it closed, does not come in after it has opened.
func TestMarksFromBeforeOpening(t *testing.T) {
	t.Parallel()
	m := newMemory(Config{Memory: Memory{Size: 10}}.WithDefaults())
	t.Cleanup(m.close)
	closed := m.mark()
	m.obey(verdict{open: true})
	if m.put("k", "old", nil, closed, time.Hour) {
		t.Error("a value that was asked for before anything was heard is kept")
	}
	opened := m.mark()
	m.obey(verdict{why: errNotListening})
	m.obey(verdict{open: true})
	if m.put("k", "old", nil, opened, time.Hour) || !m.doubted(opened) {
		t.Error("a value that was asked for before the memory closed is kept")
	}
	if !m.put("k", "new", nil, m.mark(), time.Hour) {
		t.Error("nothing is kept")
	}
}
