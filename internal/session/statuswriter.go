package session

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

const (
	// mostPatience bounds the wait for one write of a status record.
	mostPatience = 5 * time.Minute
	// noteGrace is how much longer than a COMMIT such a write may take, since it may wait for a
	// lock first.
	noteGrace = 500 * time.Millisecond
)

// A statusWriter writes the worker status record in a separate session, one statement at a time.
// Every statement that a client abandons leaves a session behind for as long as the server hangs. A
// write without a reply therefore keeps running, which also shows when the server commits again.
// The writer gives up after 5 s, then 10 s, and so on up to 5 min. Safe for concurrent use.
type statusWriter struct {
	db       *sql.DB
	commits  *commitWatch
	limit    time.Duration // a write that takes longer counts as hung
	ctx      context.Context
	stop     context.CancelFunc
	mu       sync.Mutex
	patience time.Duration
	pending  chan struct{} // closed when the running write has ended; nil: none
}

func newStatusWriter(db *sql.DB, commits *commitWatch, limit time.Duration) *statusWriter {
	w := &statusWriter{db: db, commits: commits, limit: limit, patience: limit + noteGrace}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// exec executes a statement and waits for it until ctx ends. While an earlier statement hangs, it
// returns an error immediately.
func (w *statusWriter) exec(ctx context.Context, query string, args ...any) error {
	done, err := w.begin(ctx)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer close(done)
		result <- w.write(query, args)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending = nil
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin waits until no other write is running.
func (w *statusWriter) begin(ctx context.Context) (done chan struct{}, err error) {
	for {
		w.mu.Lock()
		before := w.pending
		if before == nil {
			w.pending = make(chan struct{})
			defer w.mu.Unlock()
			return w.pending, nil
		}
		w.mu.Unlock()
		if err := w.commits.hung(); err != nil {
			return nil, err
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// write executes one statement and adapts the patience for the next one.
func (w *statusWriter) write(query string, args []any) error {
	w.mu.Lock()
	ctx, cancel := context.WithTimeout(w.ctx, w.patience)
	w.mu.Unlock()
	defer cancel()
	on := w.commits.begin(w.limit)
	_, err := w.db.ExecContext(ctx, query, args...)
	late := ctx.Err() != nil
	err = w.commits.end(on, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.patience = w.limit + noteGrace
	case late:
		w.patience = min(2*w.patience, mostPatience)
	}
	return err
}

// close aborts the running write and returns when it has ended.
func (w *statusWriter) close() error {
	w.stop()
	w.mu.Lock()
	pending := w.pending
	w.mu.Unlock()
	if pending != nil {
		<-pending
	}
	return w.db.Close()
}

// Note writes the status record of a worker: see statusWriter.
func (s *Sessions) Note(ctx context.Context, query string, args ...any) error {
	return s.status.exec(ctx, query, args...)
}
