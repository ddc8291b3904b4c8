package keyspace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	latePatience = 5 * time.Second // with an answer that is late
	lateLife     = 2 * time.Second // of what was found, unless somebody asks again
)

// A lateAnswer finds out why a server does not answer in time. One that loads a large file, or runs a long script, says so
// when it gets to it, which may be too late for a command: by itself that shows as a timeout. So after a timeout somebody
// with more patience asks as well. In Cluster nobody does: there a timeout is of one master.
type lateAnswer struct {
	connect func() redis.UniversalClient // nil: nobody asks

	mu     sync.Mutex
	found  *Outage // what the last answer said, nil if nothing
	ended  time.Time
	cancel func() // of the question under way, nil if there is none
	closed bool
	asking sync.WaitGroup
}

// explain returns o, or for a timeout what a late answer said.
func (l *lateAnswer) explain(o *Outage) *Outage {
	if l.connect == nil || o.State != StateTimeout {
		return o
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil && !l.closed {
		if time.Since(l.ended) > lateLife {
			l.found = nil
		}
		l.begin()
	}
	if l.found == nil {
		return o
	}
	return l.found
}

// begin asks. The caller holds the lock.
func (l *lateAnswer) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	client := l.connect()
	l.cancel = func() { // the client library doesn't give up a command for a context alone
		cancel()
		_ = client.Close() // it is asked for a PING and nothing else
	}
	l.asking.Go(func() { l.ask(ctx, client) })
}

// ask waits for one answer.
func (l *lateAnswer) ask(ctx context.Context, client redis.UniversalClient) {
	began := time.Now()
	err := client.Ping(ctx).Err()
	var found *Outage
	if firstWord(err) != "" {
		o := outage(err)
		found = &Outage{State: o.State, Err: fmt.Errorf("%w (it answered after %v)", o.Err, time.Since(began).Round(time.Millisecond))}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.found, l.ended, l.cancel = found, time.Now(), nil
}

// close ends the question that is under way.
func (l *lateAnswer) close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.asking.Wait()
}
