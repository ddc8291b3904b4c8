package session

import (
	"cmp"
	"database/sql"
	"fmt"
	"sync"
	"time"

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

// begin records a write that should commit within limit. The caller passes its result to end.
func (c *commitWatch) begin(limit time.Duration) *write {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &write{time.Now(), limit}
	if c.open == nil {
		c.open = map[*write]struct{}{}
	}
	c.open[w] = struct{}{}
	return w
}

// end records the result of a write. If the server did not reply in time, it returns a [HungError].
func (c *commitWatch) end(w *write, err error) error {
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
	w := s.commits.begin(s.commitLimit())
	if err := s.commits.end(w, tx.Commit()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// commitLimit returns how long a COMMIT may take: as long as a batch, but less than the client
// waits for a reply.
func (s *Sessions) commitLimit() time.Duration { return min(s.BatchLimit(), s.patience*4/5) }
