package cache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Fill is how a loader decides what becomes of what it loads: see FillFrom. All methods may be called on nil, where they
// do nothing, so that a loader can be tested by itself. Safe for concurrent use.
type Fill struct {
	mu   sync.Mutex
	ttl  time.Duration
	tags []string
	skip bool

	late  map[string]string // for whoever stores: see job.readLate; "" for a tag without a stamp to store anything with
	cache *Cache            // whose loader has this Fill
	outer *Fill             // of the loader that has asked for this load, or nil
	runs  atomic.Bool       // the loader
}

// runsIn reports whether the loader of a Fill runs and is the Cache's, or one that has asked for its load.
func (f *Fill) runsIn(c *Cache) bool {
	for ; f != nil; f = f.outer {
		if f.cache == c && f.runs.Load() {
			return true
		}
	}
	return false
}

type fillKey struct{}

// FillFrom returns the Fill of a loader's context, and nil for any other context.
func FillFrom(ctx context.Context) *Fill {
	f, _ := ctx.Value(fillKey{}).(*Fill)
	return f
}

// TTL replaces the policy's TTL for this value. Less than a millisecond means that it is not stored. One that is longer by
// more than an hour than the longest life by the policy is for values without tags: others end with their tags' stamps, an
// hour after that life, and are loaded again.
func (f *Fill) TTL(ttl time.Duration) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ttl, f.skip = min(ttl, longestTTL), f.skip || ttl < time.Millisecond
}

// Tag adds tags to those of the policy. A tag that neither the policy nor the value before names is known only when the
// load is over, and what changed meanwhile cannot be told: the value is then stored only if this process has seen the
// tag's present stamp before the load. So the first value of such a tag is not stored, and its second is. With
// Config.Plain, which has no room for stamps, no value with a tag is stored.
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

// seenMost is how many stamps a process remembers.
const seenMost = 65_536

// seenStamps remembers which stamps this process has seen, and when: the events number at that time.
type seenStamps struct {
	mu   sync.Mutex
	tags map[string]seenStamp
}

type seenStamp struct {
	text string
	at   uint64
}

// saw remembers stamps, and reports whether every one of them was seen already when the event before was the latest.
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

// touches remembers when sliding values were last prolonged, in milliseconds of Redis' time.
type touches struct {
	mu   sync.Mutex
	last map[string]int64
}

// due reports whether a key is to be prolonged now, and takes it as done.
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
