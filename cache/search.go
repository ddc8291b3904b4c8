package cache

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// resultLife is the life of a search's result.
	resultLife = time.Second
	// searchLimit bounds a search, and the closing of connections after it.
	searchLimit = time.Second
	// lookPause is the wait between two new connections before the first field.
	lookPause = 3 * time.Second
	// mostClosed bounds how many connections are closed in a row.
	mostClosed = 100
)

// A search finds out what an old answer means: either no worker runs, or workers write to another
// server. In the second case a new connection leads there. All callers share one search.
type search struct {
	closing atomic.Bool // connections are being closed

	mu      sync.Mutex
	ended   time.Time     // the latest one
	result  error         // of the latest one
	running chan struct{} // closed at the end; nil: none runs
}

// moved returns errLeft if a new connection finds workers, or if ctx ends before one has answered.
// It returns nil if a new connection finds none or fails: then no better server is known.
func (a *aliveCheck) moved(ctx context.Context) error {
	s := &a.search
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) >= resultLife {
		if s.running == nil {
			ended := make(chan struct{})
			if !a.launch(func() { a.run(ended) }) {
				return nil
			}
			s.running = ended
		}
		running := s.running
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return errLeft
		}
	}
	if s.result != nil {
		a.closeOld()
	}
	return s.result
}

// run makes one search. It closes ended.
func (a *aliveCheck) run(ended chan struct{}) {
	ctx, cancel := context.WithTimeout(a.life, searchLimit)
	defer cancel()
	var result error
	if a.asksNew(ctx) {
		result = errLeft
		a.left.Store(time.Now().UnixNano())
		a.logger.LogAttrs(a.life, slog.LevelWarn, "workers have left the server of some connections: closing these, and loading meanwhile")
	}
	s := &a.search
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.result, s.running = time.Now(), result, nil
	close(ended)
}

// asksNew reports whether a new connection leads to a server where workers write.
func (a *aliveCheck) asksNew(ctx context.Context) bool {
	o := *a.client.Options()
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxRetries = 1, 0, 0, 0, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(&o)
	defer client.Close()
	found, err := a.asks(ctx, client)
	return found && err == nil
}

// asks reports whether a pipeline of client leads to a server where workers write.
func (a *aliveCheck) asks(ctx context.Context, client optioned) (bool, error) {
	var q question
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { q = a.ask(ctx, p); return nil })
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	return a.read(q).young, nil
}

// look asks a new connection, concurrently with callers, while no field has been seen: workers may
// have started at another server only. Once a field was seen, a server without fields has been
// left.
func (a *aliveCheck) look() {
	now, last := time.Now().UnixNano(), a.looked.Load()
	if now-last < int64(lookPause) || !a.looked.CompareAndSwap(last, now) {
		return
	}
	a.launch(func() {
		ctx, cancel := context.WithTimeout(a.life, searchLimit)
		defer cancel()
		if a.asksNew(ctx) {
			a.seen.Store(true)
		}
	})
}

// closeOld closes connections of the pool until one leads to a server where workers write.
// Connections in use may remain, and every answer is checked anyway. QUIT needs no ACL permission.
func (a *aliveCheck) closeOld() {
	if a.search.closing.Swap(true) {
		return
	}
	closing := func() {
		defer a.search.closing.Store(false)
		ctx, cancel := context.WithTimeout(a.life, searchLimit)
		defer cancel()
		for range mostClosed {
			if found, err := a.asks(ctx, a.client); found || err != nil {
				return
			}
			// The pool hands out the connection that was returned last, so this is the same one.
			_, _ = a.client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Do(ctx, "quit").Err() })
		}
	}
	if !a.launch(closing) {
		a.search.closing.Store(false)
	}
}
