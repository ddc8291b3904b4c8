package maintenance

import (
	"context"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

const (
	repairsPerSecond = 10
	repairPause      = time.Minute // of one key
)

// repairs are the stale entries of the last minute. One goroutine owns it.
type repairs struct {
	last    map[string]repair
	tokens  float64
	filled  time.Time
	denied  time.Time // when Redis last refused one
	looks   bool      // it is logged that the account may not look
	repairs bool      // nor repair
}

// A repair is the last stale entry of a key.
type repair struct {
	head     string // of the entry
	seen     time.Time
	repaired time.Time // when one was last unlinked
}

func newRepairs() repairs {
	return repairs{last: map[string]repair{}, tokens: repairsPerSecond, filled: time.Now()}
}

// take reports whether a key may be repaired now.
func (r *repairs) take(key string) bool {
	now := time.Now()
	for key, last := range r.last {
		if now.Sub(last.seen) >= repairPause {
			delete(r.last, key)
		}
	}
	r.tokens = min(r.tokens+repairsPerSecond*now.Sub(r.filled).Seconds(), repairsPerSecond)
	r.filled = now
	if now.Sub(r.last[key].repaired) < repairPause || r.tokens < 1 || now.Sub(r.denied) < deniedPause {
		return false
	}
	r.tokens--
	return true
}

// isNew reports whether the last stale entry of the key was another one, and records this one.
func (r *repairs) isNew(key, head string, repaired bool) bool {
	last, known := r.last[key]
	now := repair{head, time.Now(), last.repaired}
	if repaired {
		now.repaired = now.seen
	}
	r.last[key] = now
	return !known || last.head != head
}

// unlink unlinks a stale entry, if it is still the same, and publishes its key.
func (c *SpotChecker) unlink(ctx context.Context, s *SpotStale, head string) bool {
	if !c.repair.take(s.Key) {
		return false
	}
	onlyHeld := s.Held && (s.LeasedAt.IsZero() || !s.LeasedAt.Before(s.UnlinkedAt))
	done, err := c.cfg.Redis.Repair(ctx, s.Key, head, onlyHeld)
	switch {
	case keyspace.IsDenied(err):
		c.repair.denied = time.Now()
		c.mayRepair(err)
		return false
	case err != nil || !done:
		return false
	}
	c.mayRepair(nil)
	if _, err := c.cfg.Publish(ctx, keyspace.News{Keys: []string{s.Key}}); err != nil {
		c.cfg.Log.Warn("cannot publish the key of a stale entry; readers may keep it in memory", "key", s.Key, "error", err)
	}
	c.cfg.Metrics.Repaired()
	return true
}

// mayLook and mayRepair follow whether the account has the permissions. The log reports a change.
func (c *SpotChecker) mayLook(err error) {
	switch denied := keyspace.IsDenied(err); {
	case denied:
		c.denied = time.Now()
		c.drop()
		c.tell(&c.repair.looks, "spot checks are off", err)
	case err == nil && c.proven && c.repair.looks:
		c.repair.looks = false
		c.cfg.Log.Info("spot checks are on again")
	}
	c.cfg.Metrics.Off(c.repair.looks, c.repair.repairs)
}

func (c *SpotChecker) mayRepair(err error) {
	switch {
	case err != nil:
		c.tell(&c.repair.repairs, "stale entries are not repaired", err)
	case c.repair.repairs:
		c.repair.repairs = false
	}
	c.cfg.Metrics.Off(c.repair.looks, c.repair.repairs)
}

func (c *SpotChecker) tell(told *bool, effect string, err error) {
	if *told {
		return
	}
	*told = true
	c.cfg.Log.Warn(effect+"; trying again every minute", "error", err, "cure", "ACL SETUSER the worker's user with "+keyspace.EntryRules)
}

// drop drops all checks: the account may not look. The next look is one of the first key alone.
func (c *SpotChecker) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready, c.proven = false, false
	clear(c.sample.queues[:])
	c.sample.spare = nil
}

// report logs a stale entry.
func (c *SpotChecker) report(s *SpotStale) {
	args := []any{
		"key", s.Key, "entity", s.Entity, "id", s.ID, "row", s.Row, "trace", s.Trace, "epoch", s.Position.Epoch, "position", s.Position.N,
		"unlinked_at", s.UnlinkedAt, "seen_after", s.After.Round(time.Millisecond).String(), "repaired", s.Repaired,
	}
	if !s.LeasedAt.IsZero() {
		args = append(args, "leased_at", s.LeasedAt)
	}
	if older := s.UnlinkedAt.Sub(s.LeasedAt); !s.LeasedAt.IsZero() && older > 0 {
		args = append(args, "older", older.String())
	}
	if !s.ExpiresAt.IsZero() {
		args = append(args, "expires_in", s.ExpiresAt.Sub(s.SeenAt).Round(time.Millisecond).String())
	}
	hint := "find what stores this key without its lease: a SET in place of fill.lua, a copy of Redis data, or a reader of another version"
	switch {
	case s.Held:
		hint = "find what stores this key without looking at its tombstone"
	case strings.HasPrefix(s.Key, protocol.StampPrefix):
		hint = "find what stores this version of a tag without stamp.lua, or a copy of Redis data"
	}
	c.cfg.Log.Error("stale entry", append(args, "cure", hint)...)
}
