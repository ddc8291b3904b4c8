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
	// lateLife is how long what the server said explains timeouts, beyond what a question and a
	// command may take. It exceeds the time between two attempts of a caller that waits for the end
	// of an outage.
	lateLife = 2 * time.Second
)

// A lateAnswer finds out why a server does not answer in time. A server that loads a large file, or
// runs a long script, reports that only when it gets to it, which may be too late for a command:
// the caller sees a timeout. So after a timeout another connection with a longer limit asks as
// well. Such a server may answer one command in time and not the next one. Its report explains
// later timeouts too, until it answers well or the connection fails. In a Cluster there is no such
// connection: a timeout there comes from one master.
type lateAnswer struct {
	connect func() redis.UniversalClient // nil: no second connection

	mu     sync.Mutex
	found  *Outage // what the server last said, nil if nothing
	said   time.Time
	life   time.Duration // of found
	cancel func()        // of the question under way, nil if there is none
	closed bool
	asking sync.WaitGroup
}

// explain returns o, or for a timeout what the server said, to another command or late.
func (l *lateAnswer) explain(o *Outage) *Outage {
	if l.connect == nil {
		return o
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch o.State {
	case StateLoading, StateBusy: // what keeps a server from answering in time
		l.found, l.said = o, time.Now()
	case StateTimeout:
		if l.cancel == nil && !l.closed {
			l.begin()
		}
		if l.found != nil && time.Since(l.said) < l.life {
			return l.found
		}
	}
	return o
}

// begin asks. The caller holds the lock.
func (l *lateAnswer) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	client := l.connect()
	l.cancel = func() { // the client library does not give up a command for a context alone
		cancel()
		_ = client.Close() // it is asked for a PING and nothing else
	}
	l.asking.Go(func() { l.ask(ctx, client) })
}

// ask waits for one answer.
func (l *lateAnswer) ask(ctx context.Context, client redis.UniversalClient) {
	began := time.Now()
	err := client.Ping(ctx).Err()
	took := time.Since(began).Round(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.cancel = nil
	switch o := outage(err); {
	case firstWord(err) != "":
		l.found, l.said = &Outage{State: o.State, Err: fmt.Errorf("%w (it answered after %v)", o.Err, took)}, time.Now()
	case err == nil, o.State != StateTimeout:
		l.found = nil
	}
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
