package maintenance

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// drift is how much the clock of a master may gain or lose on this process's clock while both are
// slewed, in 1/drift; slack is the error of one reading, in microseconds.
const (
	drift = 1000
	slack = 100
)

// A watch notices what makes times of a master incomparable: its clock was set, or it got or lost
// slots. Then another generation begins. A clock that is set backwards by less than the time that a
// reading took, or that is set forth and back between two readings, goes unnoticed.
type watch struct {
	base       time.Time // of this process's monotonic clock
	generation int
	masters    map[string]*span // by address
}

// A span bounds the difference between the clock of a master and this process's clock at a time.
type span struct {
	low, high int64 // microseconds
	at        time.Time
	layout    string // "": not seen yet
}

// saw follows a reading.
func (w *watch) saw(r keyspace.Reading) *span {
	next := &span{
		low:  int64(r.Micros) - r.Answered.Sub(w.base).Microseconds() - slack,
		high: int64(r.Micros) - r.Sent.Sub(w.base).Microseconds() + slack, at: r.Answered,
	}
	before := w.masters[r.Addr]
	w.masters[r.Addr] = next
	if before == nil {
		return next
	}
	next.layout = before.layout
	if passed := r.Answered.Sub(before.at); passed < 0 { // of another goroutine
		next.at = before.at
	}
	widen := max(r.Answered.Sub(before.at), 0).Microseconds() / drift
	low, high := max(next.low, before.low-widen), min(next.high, before.high+widen)
	if low > high {
		w.generation++
		return next
	}
	next.low, next.high = low, high
	return next
}

// sawMaster follows a look.
func (w *watch) sawMaster(m *keyspace.Master) {
	s := w.saw(m.Reading)
	if s.layout != "" && s.layout != m.Layout {
		w.generation++
	}
	s.layout = m.Layout
}

// least and most are times that no clock of a server shows, in microseconds: 2001 and 5138. They
// tell entries from JSON that has fields of the same names.
const (
	least = 1e15
	most  = 1e17
)

// EntryTimes returns the lease time and the expiry of an entry, or the time of the version of a tag, in
// microseconds. 0: not known. head is the beginning of the text. The fields of an entry may come in
// any order, but the lease time and the expiry come before its tags and its value.
func EntryTimes(head string, isTag bool) (leased, expiry uint64) {
	if isTag {
		random, micros, ok := strings.Cut(head, ":")
		if n, err := strconv.ParseUint(micros, 10, 64); ok && err == nil && random != "" && n > least && len(head) < keyspace.HeadBytes {
			return n, 0
		}
		return 0, 0
	}
	rest, ok := strings.CutPrefix(head, "{")
	for ok && (leased == 0 || expiry == 0) {
		var name, value string
		name, rest, _ = strings.Cut(rest, ":")
		if value, rest, ok = cutField(rest); !ok {
			return 0, 0
		}
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case name == `"b"` && n > least && n < most:
			leased = n
		case name == `"e"` && n > least/1000 && n < most/1000:
			expiry = n * 1000
		}
	}
	if !ok {
		return 0, 0
	}
	return leased, expiry
}

// cutField returns a number, or a text without a backslash, and what follows the comma after it.
func cutField(text string) (value, rest string, ok bool) {
	if quoted, isText := strings.CutPrefix(text, `"`); isText {
		value, rest, ok = strings.Cut(quoted, `"`)
		rest, _ = strings.CutPrefix(rest, ",")
		return "", rest, ok && !strings.Contains(value, `\`)
	}
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	if n == 0 || n == len(text) || text[n] != ',' && text[n] != '}' {
		return "", "", false
	}
	return text[:n], text[n+1:], true
}

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

// mayRepair reports whether a key may be repaired now.
func (r *repairs) mayRepair(key string) bool {
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
	if !c.repair.mayRepair(s.Key) {
		return false
	}
	onlyHeld := s.Held && (s.LeasedAt.IsZero() || !s.LeasedAt.Before(s.UnlinkedAt))
	done, err := c.Redis.Repair(ctx, s.Key, head, onlyHeld)
	switch {
	case keyspace.IsDenied(err):
		c.repair.denied = time.Now()
		c.mayRepair(err)
		return false
	case err != nil || !done:
		return false
	}
	c.mayRepair(nil)
	if _, err := c.Channels.Publish(ctx, keyspace.News{Keys: []string{s.Key}}); err != nil {
		c.Log.Warn("cannot publish the key of a stale entry; readers may keep it in memory", "key", s.Key, "error", err)
	}
	c.metrics.Repaired()
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
		c.Log.Info("spot checks are on again")
	}
	c.metrics.Off(c.repair.looks, c.repair.repairs)
}

func (c *SpotChecker) mayRepair(err error) {
	if err != nil {
		c.tell(&c.repair.repairs, "stale entries are not repaired", err)
	} else {
		c.repair.repairs = false
	}
	c.metrics.Off(c.repair.looks, c.repair.repairs)
}

func (c *SpotChecker) tell(told *bool, effect string, err error) {
	if *told {
		return
	}
	*told = true
	c.Log.Warn(effect+"; trying again every minute", "error", err, "cure", "ACL SETUSER the worker's user with "+keyspace.EntryRules)
}

// drop drops all checks: the account may not look. The next look is one of the first key alone.
func (c *SpotChecker) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready, c.proven = false, false
	clear(c.sample.queues[:])
	c.sample.spare = nil
}

// logStale logs a stale entry.
func (c *SpotChecker) logStale(s *SpotStale) {
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
	c.Log.Error("stale entry", append(args, "cure", hint)...)
}
