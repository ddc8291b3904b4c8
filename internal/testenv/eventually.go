package testenv

import (
	"testing"
	"time"
)

// patience bounds a wait for a condition that must become true. A successful test never waits so
// long.
const patience = time.Minute

// Eventually waits for a condition that another process or goroutine brings about, and fails the
// test after a minute. what names the condition, for example "the new master". Call it from the
// test's own goroutine.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	began := time.Now()
	for !condition() {
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
		time.Sleep(Again(began))
	}
}

// Again returns how long a wait that began at this time sleeps until its next check: a tenth of the
// time so far, at least 2 ms, at most 50 ms. Checks that are more frequent take the processors that
// other tests need.
func Again(began time.Time) time.Duration {
	return min(max(2*time.Millisecond, time.Since(began)/10), 50*time.Millisecond)
}
