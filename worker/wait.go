package worker

import (
	"math/rand/v2"
	"time"
)

// outagePause is the wait after the n-th failure in a row, n from 1: min(n x 200 ms, 1 s), jittered. O2 allows
// up to 5 s; it ends at 1 s here, because one attempt a second costs a recovering server nothing, and a
// customer waits for the recovery.
func outagePause(n int) time.Duration {
	return jitter(min(time.Duration(n)*200*time.Millisecond, time.Second), 0.1)
}

// jitter spreads d by share either way, so that workers do not poll in step.
func jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
