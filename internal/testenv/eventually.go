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
	if !Comes(patience, nil, condition) {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

// Comes checks a condition until it is true, and reports whether it was. It gives up after limit,
// or when over is closed; a nil over never is.
func Comes(limit time.Duration, over <-chan struct{}, condition func() bool) bool {
	for began := time.Now(); !condition(); {
		if time.Since(began) > limit {
			return false
		}
		select {
		case <-over:
			return condition()
		case <-time.After(untilNext(began)):
		}
	}
	return true
}

// untilNext returns how long a wait that began at this time sleeps until its next check: a tenth
// of the time so far, at least 2 ms, at most 50 ms. More frequent checks take the processors that
// other tests need.
func untilNext(began time.Time) time.Duration {
	return min(max(2*time.Millisecond, time.Since(began)/10), 50*time.Millisecond)
}
