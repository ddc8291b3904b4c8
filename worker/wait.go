package worker

import (
	"math/rand/v2"
	"time"
)

// outagePause is the wait after the n-th failure in a row, n from 1: min(n x 200 ms, 400 ms), jittered. O2 allows
// up to 5 s; it ends here, because two attempts a second cost a recovering server nothing, a customer waits for the
// recovery, and the last attempt before it may itself take a timeout to fail.
func outagePause(n int) time.Duration {
	return jitter(min(time.Duration(n)*200*time.Millisecond, 400*time.Millisecond), 0.1)
}

// jitter spreads d by share either way, so that workers do not poll in step.
func jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
