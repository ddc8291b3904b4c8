package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lease that a reload makes shorter counts until those taken before have run out (sentence 14).
func TestSettleLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l settleLease
		for i, c := range []struct {
			after, set, want time.Duration // set 0: no reload
		}{
			{set: 10 * time.Second, want: 10 * time.Second},
			{set: 30 * time.Second, want: 30 * time.Second}, // a longer one counts immediately
			{set: 5 * time.Second, want: 30 * time.Second},
			{after: 20 * time.Second, set: 7 * time.Second, want: 30 * time.Second}, // from 5 s
			{after: 9 * time.Second, set: 2 * time.Second, want: 30 * time.Second},
			{after: time.Second, want: 7 * time.Second},
			{after: 6 * time.Second, want: 2 * time.Second},
		} {
			time.Sleep(c.after)
			if c.set > 0 {
				l.set(c.set)
			}
			if got := l.longest(); got != c.want {
				t.Errorf("step %d: got %v, want %v", i, got, c.want)
			}
		}
	})
}
