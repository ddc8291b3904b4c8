package session

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
)

// A HungError reports a write whose COMMIT does not return. The server may block it, and keep the
// transaction's locks, until its disk has space again or a replica responds.
type HungError struct{ Since time.Time } // when the write began

// Error implements error.
func (e *HungError) Error() string {
	return fmt.Sprintf("a COMMIT has not returned since %s", e.Since.UTC().Format(time.TimeOnly+" UTC"))
}

// longestBatch bounds a batch. It is below the five seconds that a stop may take.
const longestBatch = 4 * time.Second

// BatchLimit returns how long a batch may take, from the claim to the commit: less than half of the
// time that the server allows a session to be idle.
func (s *Sessions) BatchLimit() time.Duration { return min(s.Config.ClaimTimeout*2/5, longestBatch) }

// A commitWatch tracks the writes of this process that the server has not committed in time. A
// write without a reply counts until another write commits. Reads and claims do not count: they
// work even while a COMMIT hangs. Safe for concurrent use.
type commitWatch struct {
	mu   sync.Mutex
	open map[*write]struct{}
	// start of the first write that got no reply in time; zero: a write has committed since
	lost time.Time
	// start of a write that got no reply when reads got none either; zero: a write has committed
	// since
	doubtful time.Time
}

// A write is one COMMIT, or one autocommitted statement, that is running.
type write struct {
	began time.Time
	limit time.Duration
}

// beginWrite records a write that should commit within limit. The caller passes its result to end.
func (c *commitWatch) beginWrite(limit time.Duration) *write {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &write{time.Now(), limit}
	if c.open == nil {
		c.open = map[*write]struct{}{}
	}
	c.open[w] = struct{}{}
	return w
}

// endWrite records the result of a write. If the server did not reply in time, it returns a
// [HungError].
func (c *commitWatch) endWrite(w *write, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, w)
	switch {
	case err == nil:
		c.lost, c.doubtful = time.Time{}, time.Time{}
	case mysqlerr.Number(err) == mysqlerr.LockTimeout && !c.doubtful.IsZero(): // by that write, which hangs
		c.lost = c.doubtful
		return &HungError{c.lost}
	case mysqlerr.Number(err) == 0 && time.Since(w.began) > w.limit:
		if c.lost.IsZero() || w.began.Before(c.lost) {
			c.lost = w.began
		}
		return &HungError{w.began}
	}
	return err
}

// hung returns a [HungError] for the first write that hangs or got no reply, or nil.
func (c *commitWatch) hung() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.lost
	for w := range c.open {
		if time.Since(w.began) > w.limit && (since.IsZero() || w.began.Before(since)) {
			since = w.began
		}
	}
	if since.IsZero() {
		return nil
	}
	return &HungError{since}
}

// NoReply records the error of a plain read. If the server did not answer it, it does not matter
// that it answers no write either: a write then counts as hung only if it gets no reply for its
// limit from now on.
func (s *Sessions) NoReply(err error) {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	if mysqlerr.Number(err) == 0 {
		s.commits.doubtful, s.commits.lost = cmp.Or(s.commits.lost, s.commits.doubtful), time.Time{}
		for w := range s.commits.open {
			s.commits.doubtful, w.began = cmp.Or(s.commits.doubtful, w.began), time.Now()
		}
	}
}

// Hung returns a [HungError] if a settlement or a worker status record has not committed within the
// batch limit, until one commits. Otherwise it returns nil. It does not query the server.
func (s *Sessions) Hung() error { return s.commits.hung() }

// Commit commits a transaction of the worker and reports a COMMIT that hangs as a [HungError].
func (s *Sessions) Commit(tx *sql.Tx) error {
	w := s.commits.beginWrite(s.commitLimit())
	return dberr.Wrap(s.commits.endWrite(w, tx.Commit()), "commit")
}

// commitLimit returns how long a COMMIT may take: as long as a batch, but less than the client
// waits for a reply.
func (s *Sessions) commitLimit() time.Duration { return min(s.BatchLimit(), s.patience*4/5) }

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
	turn     chan struct{} // has an element while a write runs
	patience time.Duration // of the running write
}

func newStatusWriter(db *sql.DB, commits *commitWatch, limit time.Duration) *statusWriter {
	w := &statusWriter{db: db, commits: commits, limit: limit, turn: make(chan struct{}, 1), patience: limit + noteGrace}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// exec executes a statement and waits for it until ctx ends. While an earlier statement hangs, it
// returns an error immediately.
func (w *statusWriter) exec(ctx context.Context, query string, args ...any) error {
	if err := w.awaitTurn(ctx); err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer func() { <-w.turn }()
		result <- w.writeOnce(query, args)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTurn waits until no other write is running.
func (w *statusWriter) awaitTurn(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	default:
	}
	if err := w.commits.hung(); err != nil {
		return err
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeOnce executes one statement and adapts the patience for the next one.
func (w *statusWriter) writeOnce(query string, args []any) error {
	ctx, cancel := context.WithTimeout(w.ctx, w.patience)
	defer cancel()
	on := w.commits.beginWrite(w.limit)
	_, err := w.db.ExecContext(ctx, query, args...)
	late := ctx.Err() != nil
	err = w.commits.endWrite(on, err)
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
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	return w.db.Close()
}

// Note writes the status record of a worker: see statusWriter.
func (s *Sessions) Note(ctx context.Context, query string, args ...any) error {
	return s.status.exec(ctx, query, args...)
}
