package lock

import (
	"context"
	"sync"
)

// queues are the callers of this process that wait for locks: one of each name asks the backend, at
// the front.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

// A queue holds the callers of one name.
type queue struct {
	front chan struct{} // has room for one, who asks
	users int
	last  *HeldError // what the front was told last, for those behind who give up
}

// join puts the caller in the queue of a name, until leave.
func (q *queues) join(name string) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byName == nil {
		q.byName = map[string]*queue{}
	}
	one := q.byName[name]
	if one == nil {
		one = &queue{front: make(chan struct{}, 1)}
		q.byName[name] = one
	}
	one.users++
	return one
}

func (q *queues) leave(name string, one *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(q.byName, name)
	}
}

// tell keeps what the front was told.
func (q *queues) tell(one *queue, told *HeldError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.last = told
}

func (q *queues) told(one *queue) *HeldError {
	q.mu.Lock()
	defer q.mu.Unlock()
	return one.last
}

// toFront waits until the caller is at the front, which it gives up with a receive.
func (one *queue) toFront(ctx context.Context) error {
	select {
	case one.front <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
