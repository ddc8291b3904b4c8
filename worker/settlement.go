package worker

import (
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// settlement returns the outcome of each change: applied rows are done and journalled, a fault that
// may pass is delayed until its attempts are used up, any other is dead-lettered.
func (b *batch) settlement(cfg Config) store.Settlement {
	n := len(b.changes) // nothing is wrong with any of them, mostly
	s := store.Settlement{MapVersion: b.m.Version(), Done: make([]uint64, 0, n), Journal: make([]store.JournalEntry, 0, n)}
	for i := range b.changes {
		c := &b.changes[i]
		switch {
		case c.away != nil:
			s.Delays = append(s.Delays, store.Delay{
				ID: c.row.ID, After: awayDelay(time.Since(c.row.CreatedAt)), Attempts: c.row.Attempts, Reason: store.ReasonAway, Error: c.away.Error(),
			})
			continue
		case c.fault != nil:
			if c.partial {
				entry := c.entry()
				entry.Partial = true
				s.Journal = append(s.Journal, entry)
			}
			c.settleFault(cfg, &s)
			continue
		}
		s.Done = append(s.Done, c.row.ID)
		s.Journal = append(s.Journal, c.entry())
		if !c.row.Repeated {
			for _, after := range c.plan.Repeat {
				s.Repeats = append(s.Repeats, store.Repeat{ID: c.row.ID, After: after})
			}
		}
	}
	s.Sweeps = b.sweeps.list
	return s
}

func (c *change) settleFault(cfg Config, s *store.Settlement) {
	reason, text := string(c.fault.Reason), c.errorText()
	attempts := c.row.Attempts + 1
	if c.known && attempts < knownTries {
		s.Delays = append(s.Delays, store.Delay{
			ID: c.row.ID, After: min(retryDelay(cfg.RetryDelay, attempts), sleep.Jitter(knownDelay, 0.25)), Attempts: attempts, Reason: reason, Error: text,
		})
		return
	}
	if c.retry && attempts < cfg.MaxAttempts {
		s.Delays = append(s.Delays, store.Delay{
			ID: c.row.ID, After: retryDelay(cfg.RetryDelay, attempts), Attempts: attempts, Reason: reason, Error: text,
		})
		return
	}
	s.Dead = append(s.Dead, store.DeadRow{ID: c.row.ID, Reason: reason, Error: text})
}

// awayDelay grows with the waiting time of a row: thousands of rows must not keep MySQL busy. It
// stays short enough to end soon after the shard is available again.
func awayDelay(age time.Duration) time.Duration {
	return sleep.Jitter(min(max(age/4, time.Second), 5*time.Second), 0.25)
}

// retryDelay doubles with each attempt and is jittered by a quarter either way.
func retryDelay(base time.Duration, attempts int) time.Duration {
	d := base << min(attempts-1, 20)
	return sleep.Jitter(min(max(d, base), longestRetry), 0.25)
}

func (c *change) entry() store.JournalEntry {
	id := c.row.FirstID
	return store.JournalEntry{
		ID: id, Entity: c.row.Entity, EntityID: c.row.EntityID, Trace: c.row.Trace,
		Keys: c.plan.Keys, Patterns: c.plan.Patterns, Sets: c.plan.Sets, HoldMillis: millis(c.plan.Hold), WrittenMicros: c.row.CreatedAt.UnixMicro(),
	}
}
