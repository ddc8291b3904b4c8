package cache

import (
	"testing"
	"time"
)

// The time of commands that wait concurrently counts once, and none from before an answer.
func TestSilence(t *testing.T) {
	t.Parallel()
	var s silence
	never := func(time.Time, time.Time) time.Duration { return 0 }
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms-1_000_000) * time.Millisecond) }
	for _, c := range []struct{ from, until, want int }{
		{0, 40, 40}, {10, 50, 50}, {20, 30, 50}, {100, 120, 70},
	} {
		if got := s.lasts(at(c.from), at(c.until), never); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("after %+v: %v", c, got)
		}
	}
	s.answered()
	if got := s.lasts(at(0), at(200), never); got != 0 {
		t.Errorf("a command from before the answer counts %v", got)
	}
	later := time.Now().Add(time.Minute)
	if got := s.lasts(later, later.Add(time.Second), never); got != time.Second {
		t.Errorf("a command from after the answer counts %v", got)
	}
}
