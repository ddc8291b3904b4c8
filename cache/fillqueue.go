package cache

import (
	"context"
	"sync"
)

// A fillQueue stores the values of several goroutines in common pipelines, one after another.
// Values that come while a pipeline is under way wait for the next one. Safe for concurrent use.
type fillQueue struct {
	leases  *leaser
	waiting chan *queuedFill
	sending sync.Mutex // held for a pipeline
}

func newFillQueue(l *leaser) *fillQueue {
	return &fillQueue{leases: l, waiting: make(chan *queuedFill, pipelineMost)}
}

// A queuedFill is one call of fill.
type queuedFill struct {
	parcel parcel
	result filling
	done   chan struct{} // closed when result is final
}

// fill stores a parcel. It calls queued when the parcel waits for its pipeline. It blocks before if
// as many wait as a pipeline takes.
func (q *fillQueue) fill(ctx context.Context, p parcel, queued func()) filling {
	f := &queuedFill{parcel: p, result: filling{err: errEnded}, done: make(chan struct{})}
	q.waiting <- f
	queued()
	q.start(ctx)
	<-f.done
	return f.result
}

// start sends a pipeline in a new goroutine, unless one is under way or nothing waits. Every
// pipeline starts the next one.
func (q *fillQueue) start(ctx context.Context) {
	if len(q.waiting) == 0 || !q.sending.TryLock() {
		return
	}
	go func() {
		defer q.start(ctx) // what has come meanwhile
		defer q.sending.Unlock()
		q.send(ctx)
	}()
}

// send sends the waiting values, as one pipeline. Their callers get an error if the client panics or
// ends the goroutine.
func (q *fillQueue) send(ctx context.Context) {
	var fills []*queuedFill
	var parcels []parcel
	defer func() {
		_ = recover() // the callers count the error
		for _, f := range fills {
			close(f.done)
		}
	}()
	for bytes := 0; len(fills) < pipelineMost && bytes < pipelineBytes && len(q.waiting) > 0; {
		f := <-q.waiting // only this goroutine takes any
		fills, parcels = append(fills, f), append(parcels, f.parcel)
		bytes += len(f.parcel.text)
	}
	for i, result := range q.leases.fill(ctx, parcels) {
		fills[i].result = result
	}
}
