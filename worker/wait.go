package worker

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause   = 200 * time.Millisecond
	outageLimit  = 400 * time.Millisecond
	refusalLimit = 5 * time.Second
)

// outagePause is the wait after the n-th failure in a row, n from 1, jittered. It is twice the first one at most where
// a server is away: two attempts a second cost a recovering server nothing, a customer waits for the recovery, and the
// last attempt before it may itself take a timeout to fail.
//
// Where a server answers and refuses, it doubles up to five seconds. Only an operator can end that, and each attempt
// unlinks and publishes the same batch again.
func outagePause(err error, n int) time.Duration {
	limit := outageLimit
	if needsOperator(outageState(err)) {
		limit = refusalLimit
	}
	return jitter(min(firstPause<<min(n-1, 10), limit), 0.1)
}

// jitter spreads d by share either way, so that workers do not poll in step.
func jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
