package maintenance_test

import (
	"testing"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// Only unlinks that Redis has certainly lost count as healing. A worker that cannot tell yet sends no
// heartbeats either, and its record says why.
func TestNoteOfHealing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why          error
		state, error string
	}{
		{maintenance.ErrHealing, store.WorkerHealing, ""},
		{maintenance.ErrEmptied, store.WorkerWorking, ""},
		{maintenance.ErrComparing, store.WorkerWorking, maintenance.ErrComparing.Error()},
	} {
		s := newState()
		s.Up(false)
		s.Loop.Withhold(c.why)
		if n := s.Note(); n.State != c.state || n.Error != c.error || !s.Heals() {
			t.Errorf("%v: %s, %q", c.why, n.State, n.Error)
		}
		s.Loop.Polled()
		if n := s.Note(); n.State != store.WorkerWorking || n.Error != "" || s.Heals() {
			t.Errorf("after %v: %s, %q", c.why, n.State, n.Error)
		}
	}
}
