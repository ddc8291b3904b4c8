package redisurl

import (
	"testing"
	"time"
)

func TestRedialDelay(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 24: 4800 * time.Millisecond, 25: 5 * time.Second, 26: 5 * time.Second, 1 << 20: 5 * time.Second} {
		if got := redialDelay(n); got != want {
			t.Errorf("after %d failures: %v, wanted %v", n, got, want)
		}
	}
}
