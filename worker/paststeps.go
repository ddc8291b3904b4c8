package worker

import "sync/atomic"

// pastSteps are the results of the steps of a loop. Safe for concurrent use.
type pastSteps struct {
	failed  atomic.Bool  // the last one
	drained atomic.Int64 // Unix nanoseconds: when one last found no more rows to claim; 0: never
}
