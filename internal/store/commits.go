package store

import (
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// A HungError is a write whose COMMIT does not return. The server may keep it for as long as its disk
// is full, or until a replica answers, and the locks of the transaction with it.
type HungError struct{ Since time.Time } // when the write began

// Error implements error.
func (e *HungError) Error() string {
	return fmt.Sprintf("a COMMIT has not returned since %s", e.Since.UTC().Format(time.TimeOnly+" UTC"))
}

// longestBatch bounds a batch, below the five seconds in which a stop has to be over.
const longestBatch = 4 * time.Second

// BatchLimit returns how long a batch may take, from the claim to the commit: less than half of the
// time that the server allows a silent session.
func (s *Store) BatchLimit() time.Duration { return min(s.cfg.ClaimTimeout*2/5, longestBatch) }

// A commitWatch notes which writes of this process the server has not committed in time. A write that
// got no answer keeps counting until another one commits: plain reads and claims work beside a
// COMMIT that hangs, and prove nothing. Safe for concurrent use.
type commitWatch struct {
	mu   sync.Mutex
	open map[*write]struct{}
	lost time.Time // when the first write began that got no answer in time; zero: a write has committed since
}

// A write is one COMMIT, or one statement that commits by itself, on its way.
type write struct {
	began time.Time
	limit time.Duration
}

// begin notes a write that should commit within a limit. The caller passes its outcome to end.
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

// end notes the outcome of a write, and returns it as a [HungError] if there was no answer in time.
func (c *commitWatch) end(w *write, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, w)
	switch {
	case err == nil:
		c.lost = time.Time{}
	case mysqlerr.Number(err) == 0 && time.Since(w.began) > w.limit:
		if c.lost.IsZero() || w.began.Before(c.lost) {
			c.lost = w.began
		}
		return &HungError{w.began}
	}
	return err
}

// hung returns a [HungError] for the first write that hangs or got no answer, nil if there is none.
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

// Hung returns a [HungError] from the moment at which a settlement or a worker status record has
// not committed within the batch limit, until one does. It returns nil otherwise, and asks no server.
func (s *Store) Hung() error { return s.commits.hung() }

// commit commits a transaction of the worker, watched.
func (s *Store) commit(tx *sql.Tx) error {
	w := s.commits.begin(s.commitLimit())
	if err := s.commits.end(w, tx.Commit()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// commitLimit is how long a COMMIT may take: a batch's limit, and less than the client waits for an
// answer.
func (s *Store) commitLimit() time.Duration { return min(s.BatchLimit(), s.patience*4/5) }
