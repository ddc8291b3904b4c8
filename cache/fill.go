package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ttl, f.skip = min(ttl, longestTTL), f.skip || ttl < time.Millisecond
}

// Tag adds tags to those of the policy. A tag that neither the policy nor the previous value names
// is known only at the end of the load, and invalidations of it during the load are unknown. The
// value is then stored only if this process has seen the current version of the tag before the
// load. So the first value of such a tag is not stored, and the second is. With Config.Plain, which
// has no room for tag versions, no value with a tag is stored.
func (f *Fill) Tag(tags ...string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tag := range tags {
		if tag == "" {
			f.skip = true // what depends on an unknown cannot be kept
			continue
		}
		if !slices.Contains(f.tags, tag) {
			f.tags = append(f.tags, tag)
		}
	}
}

// Skip makes that the value is not stored anywhere.
func (f *Fill) Skip() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skip = true
}

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
