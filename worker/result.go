package worker

import "time"

// A Result is the result of one batch. The zero Result means that there was nothing to claim.
type Result struct {
	Claimed  int           // rows
	Full     bool          // the claim was as large as it may be: more rows probably wait
	Unlinked int           // rows whose keys are gone and that are settled
	Delayed  int           // rows delayed after a fault
	Dead     int           // rows dead-lettered
	Repeats  int           // repeats scheduled
	Keys     int           // distinct keys unlinked
	Messages int           // published
	Sweeps   int           // patterns and sets requested
	Took     time.Duration // from the claim to the commit
}

func (r *Result) add(o Result) {
	r.Claimed += o.Claimed
	r.Unlinked += o.Unlinked
	r.Delayed += o.Delayed
	r.Dead += o.Dead
	r.Repeats += o.Repeats
	r.Keys += o.Keys
	r.Messages += o.Messages
	r.Sweeps += o.Sweeps
	r.Took += o.Took
}
