package testenv

import (
	"testing"
	"time"
)

// patience bounds a wait for a condition that must become true. A successful test never waits so
// long.
const patience = time.Minute

// Eventually waits for a condition that another process or goroutine brings about. It checks every
// two milliseconds, and fails the test after a minute. what names the condition, for example "the
// new master". Call it from the test's own goroutine.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
