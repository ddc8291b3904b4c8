package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A Fill lets a loader decide how its value is stored: see FillFrom. On a nil Fill, all methods do
// nothing, so a loader can be tested alone. Safe for concurrent use.
type Fill struct {
	mu   sync.Mutex
	ttl  time.Duration
	tags []string
	skip bool

	// versions for the store step, see job.readLate; "" for a tag without a version that allows
	// storing
	late    map[string]string
	unread  error       // why late has none, or nil
	loaders *loaders    // whose loader has this Fill
	keys    []string    // that the loader loads
	outer   *Fill       // of the loader that has asked for this load, or nil
	runs    atomic.Bool // the loader
}

// runsIn reports whether the loader of a Fill runs and is one of loaders, or one that has asked for
// its load.
func (f *Fill) runsIn(l *loaders) bool {
	for ; f != nil; f = f.outer {
		if f.loaders == l && f.runs.Load() {
			return true
		}
	}
	return false
}

// refuse returns an error if the loader of a Fill, or one that has asked for its load, runs and
// loads a wanted key of loaders: it would wait for itself.
func (f *Fill) refuse(l *loaders, wanted func(key string) bool) error {
	for ; f != nil; f = f.outer {
		if i := slices.IndexFunc(f.keys, wanted); i >= 0 && f.loaders == l && f.runs.Load() {
			return fmt.Errorf("fetch %q: the load of this key waits for this call; read the row without the cache in its loader", f.keys[i])
		}
	}
	return nil
}

type fillKey struct{}

// FillFrom returns the Fill of a loader's context, and nil for any other context.
func FillFrom(ctx context.Context) *Fill {
	f, _ := ctx.Value(fillKey{}).(*Fill)
	return f
}

// TTL replaces the TTL of the policy for this value and bounds its life, for example to the life of
// an access token. Jitter only shortens it, and Stale and StaleOnError of the policy do not extend
// it. With less than a millisecond the value is not stored. A TTL that exceeds the longest life by
// the policy by more than an hour works for values without tags. Values with tags end an hour after
// that life, with the versions of their tags, and are loaded again.
func (f *Fill) TTL(ttl time.Duration) {
	f.change(func() { f.ttl, f.skip = min(ttl, longestTTL), f.skip || ttl < time.Millisecond })
}

// change calls set under the mutex, unless f is nil.
func (f *Fill) change(set func()) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	set()
}

// Tag adds tags to those of the policy. A tag that neither the policy nor the previous value names
// is known only at the end of the load, and invalidations of it during the load are unknown. The
// value is then stored only if this process has seen the current version of the tag before the
// load. So the first value of such a tag is not stored, and the second is. With Config.Plain, which
// has no room for tag versions, no value with a tag is stored.
func (f *Fill) Tag(tags ...string) {
	f.change(func() {
		for _, tag := range tags {
			if tag == "" {
				f.skip = true // what depends on an unknown cannot be kept
			} else if !slices.Contains(f.tags, tag) {
				f.tags = append(f.tags, tag)
			}
		}
	})
}

// Skip makes that the value is not stored anywhere.
func (f *Fill) Skip() { f.change(func() { f.skip = true }) }

// seenMost is how many tag versions a process keeps.
const seenMost = 65_536

// seenStamps keeps the tag versions that this process has seen, and when: the event number at that
// time.
type seenStamps struct {
	mu   sync.Mutex
	tags map[string]seenStamp
}

type seenStamp struct {
	text string
	at   uint64
}

// saw adds versions, and reports whether every one of them was already seen when the event before
// was the latest.
func (s *seenStamps) saw(stamps map[string]string, before, now uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tags == nil || len(s.tags) > seenMost {
		s.tags = map[string]seenStamp{}
	}
	all := true
	for tag, text := range stamps {
		known := s.tags[tag]
		if text == "" || known.text != text {
			s.tags[tag] = seenStamp{text, now}
			all = false
			continue
		}
		all = all && known.at < before
	}
	return all
}

// touches records when each sliding value was last extended, in milliseconds by the clock of Redis.
type touches struct {
	mu   sync.Mutex
	last map[string]int64
}

// due reports whether to extend a key now, and records it as done.
func (t *touches) due(name string, now int64, every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[name]; ok && now-last < every.Milliseconds() {
		return false
	}
	if t.last == nil || len(t.last) > seenMost {
		t.last = map[string]int64{}
	}
	t.last[name] = now
	return true
}

// A claim has what a job asks for the lease of its key with, and the lease.
type claim struct {
	names   names
	token   string // of all its requests for the lease
	unread  bool   // whether there is a value is unknown
	useless string // which value the lease script must not return: see reading.useless
	usable  bool   // other callers may get that value
	lease   string // held by this job, or ""
	taken   time.Time
	stamps  map[string]string
	since   mark // of the memory, from before the request for the lease
	// superseded reports that a load under the lease has ended without an error. If its value is not
	// stored, the value that was read before is removed with the lease.
	superseded bool
	waits
}

// granted records a lease that was requested after the mark.
func (c *claim) granted(g grant, since mark) {
	c.lease, c.taken, c.stamps, c.since = g.text, g.sent, g.stamps, since
}

// replaces records what the load is to replace.
func (c *claim) replaces(found reading) {
	c.useless, c.usable, c.unread = found.useless(), found.state > foreign || found.passed, found.unread
}

// removes reports whether releasing the lease removes the value that was read.
func (c *claim) removes() bool { return c.lease != "" && c.superseded && c.usable }

// waits are those for one lease.
type waits struct {
	left    time.Duration // of the lease that was seen last
	holders int
}

// enough records that another caller has the lease, and reports whether so many have had it that
// the caller loads without it. A lease is never extended, so a lease with a longer time to live is
// a new one. Loads under earlier leases stored nothing, or their value would have been found.
func (w *waits) enough(g grant) bool {
	if g.wait > w.left {
		w.holders++
	}
	w.left = g.wait
	return w.holders > mostRounds
}

// names are a key's three in Redis. ok is false for a key that has no lease.
type names struct {
	lease, hold, value string
	ok                 bool
}

func namesOf(name string) names {
	lease, ok := protocol.LeaseKey(name)
	hold, _ := protocol.HoldKey(name)
	return names{lease, hold, name, ok}
}

// keys returns what the scripts of leases and fills are given.
func (n names) keys() []string { return []string{n.lease, n.hold, n.value} }
