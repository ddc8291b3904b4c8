package verify

import (
	"context"
	"sync"
)

// findings are the violations of a reader since its last line. Safe for concurrent use.
type findings struct {
	mu      sync.Mutex
	found   []finding
	failure string // of the last read without an answer
	errors  int64
	missed  int64 // more findings than a line can have
}

// fail records that a read returned an error.
func (f *findings) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors++
	f.failure = err.Error()
}

func (f *findings) add(one finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.found) < mostTold {
		f.found = append(f.found, one)
	} else {
		f.missed++
	}
}

// take moves the findings to a line.
func (f *findings) take(t *tallies) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Found, t.Error, t.Errors, t.Missed = f.found, f.failure, f.errors, f.missed
	f.found, f.failure, f.errors, f.missed = nil, "", 0, 0
}
