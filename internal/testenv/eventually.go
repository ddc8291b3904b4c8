package testenv

import (
	"testing"
	"time"
)

// patience bounds a wait for what must happen; it is never waited out when all is well.
const patience = time.Minute

// Eventually waits for a condition that somebody else brings about: it asks every two milliseconds, and fails the test
// if a minute does not suffice. what names the condition, such as "the new master". Call it from the test's own
// goroutine.
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
