package cache

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"github.com/unstale/unstale/protocol"
)

// clockResolution is by how much a value in memory may outlive its time.
const clockResolution = 10 * time.Millisecond

// A memory keeps values in this process. It gives out none unless it is open, and takes none that an eviction has reached
// since the value was asked for. A nil memory is always closed.
type memory struct {
	prefix string
	ttl    time.Duration
	clock  *otter.CoarseClock
	store  *otter.Cache[string, *kept] // by key without the prefix
	hits   *stats.Counter              // values that were given out: not all that the store has are

	open    atomic.Uint64 // the generation to give out, or 0
	current atomic.Uint64 // the generation of what is put now
	doubts  atomic.Uint64 // how often something may have been missed
	evicted atomic.Uint64 // invalidations heard

	overflow overflow
	logger   *slog.Logger

	mu    sync.Mutex // held while something is put or evicted
	log   evictionLog
	tags  tagTable
	why   error // for being closed
	ended bool  // nothing opens it any more
}

// A kept value. Its own tags' cells say whether a tag was invalidated.
type kept struct {
	value      any
	generation uint64
	life       time.Duration
	tags       []*tagCell
}

// A mark is taken before a value is asked for: see put.
type mark struct {
	at     uint64 // the number of the next eviction
	doubts uint64 // so far
	open   uint64 // the generation that was given out, 0 for none
}

var errNotListening = errors.New("nothing is given out from memory: not subscribed yet")

func newMemory(config Config) *memory {
	m := &memory{
		prefix: config.Prefix, ttl: config.Memory.TTL, clock: otter.NewCoarseClock(clockResolution), hits: stats.NewCounter(),
		why: errNotListening, log: newEvictionLog(), logger: config.Logger,
	}
	if s := config.Memory.MaxStaleness; s > 0 {
		m.ttl = min(m.ttl, s)
	}
	m.current.Store(1)
	m.store = otter.Must(&otter.Options[string, *kept]{
		MaximumSize: config.Memory.Size, Clock: m.clock,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, *kept]) time.Duration { return e.Value.life }),
	})
	return m
}

// get returns the value of a key, if it bears the tags. Whoever gives it out counts it by hit.
func (m *memory) get(key string, tags []string) (any, bool) {
	if m == nil {
		return nil, false
	}
	open := m.open.Load()
	if open == 0 {
		return nil, false
	}
	k, ok := m.store.GetIfPresent(key)
	if !ok {
		return nil, false
	}
	if k.generation != open || k.gone() || !k.bears(tags) {
		return nil, false
	}
	return k.value, true
}

func (m *memory) hit() { m.hits.RecordHits(1) }

func (k *kept) gone() bool {
	for _, tag := range k.tags {
		if tag.gone.Load() {
			return true
		}
	}
	return false
}

// bears reports whether the value was stored with all tags.
func (k *kept) bears(tags []string) bool {
	for _, tag := range tags {
		if !slices.ContainsFunc(k.tags, func(cell *tagCell) bool { return cell.name == tag }) {
			return false
		}
	}
	return true
}

// mark says what has been evicted so far. Take it before sending the command whose answer is to be put, and, for what is to
// be filled, before its stamps are read.
func (m *memory) mark() mark {
	if m == nil {
		return mark{}
	}
	open := m.open.Load()
	return mark{m.log.next.Load(), m.doubts.Load(), open}
}

// put keeps a value for life, at most the configured one, unless the memory is closed or was so at the mark or since, or
// something since the mark has evicted the key or one of its tags, or may have; or no message can name one of them.
func (m *memory) put(key string, value any, tags []string, since mark, life time.Duration) bool {
	if life = min(life, m.lifetime()); life <= 0 || !m.nameable(key, tags) {
		return false
	}
	m.mu.Lock()
	open := since.open != 0 && since.open == m.open.Load()
	overrun := open && m.log.overrun(since.at)
	kept := open && !overrun && m.insert(key, value, tags, since, life)
	m.mu.Unlock()
	switch {
	case overrun:
		m.overflow.refused(m.logger)
	case kept:
		m.overflow.kept(m.logger)
	}
	return kept
}

// nameable reports whether messages can name a key and its tags: they are JSON, in which all is UTF-8.
func (m *memory) nameable(key string, tags []string) bool {
	unnamed := func(name string) bool { return !utf8.ValidString(name) }
	return !unnamed(m.prefix+key) && !slices.ContainsFunc(tags, unnamed)
}

// insert is put where the log reaches back to the mark. The caller holds mu.
func (m *memory) insert(key string, value any, tags []string, since mark, life time.Duration) bool {
	if m.log.hit(since.at, m.prefix+key) {
		return false
	}
	for _, tag := range tags {
		if m.log.hit(since.at, protocol.StampKey(tag)) {
			return false
		}
	}
	m.store.Set(key, &kept{value, since.open, life, m.cells(tags)})
	return true
}

func (m *memory) lifetime() time.Duration {
	if m == nil {
		return 0
	}
	return m.ttl
}

// cells are those of tags, nil for none. The caller holds mu.
func (m *memory) cells(tags []string) []*tagCell {
	if len(tags) == 0 {
		return nil
	}
	cells := make([]*tagCell, len(tags))
	for i, tag := range tags {
		cells[i] = m.tags.cell(tag)
	}
	return cells
}

// evict forgets keys and what patterns match, stamps among them, and remembers that it did.
func (m *memory) evict(keys []string, patterns []protocol.Glob) {
	if m == nil {
		return
	}
	m.evictOwn(keys)
	m.evictGlobs(patterns)
	m.evicted.Add(uint64(len(keys) + len(patterns)))
}

// evictOwn is evict for what this process itself has unlinked.
func (m *memory) evictOwn(keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range keys {
		m.log.addKey(name)
		if key, ok := strings.CutPrefix(name, m.prefix); ok {
			m.store.Invalidate(key)
		}
		if tag, ok := strings.CutPrefix(name, protocol.StampPrefix); ok {
			m.tags.drop(tag)
		}
	}
}

// evictGlobs looks through everything for each pattern, and lets others in between two.
func (m *memory) evictGlobs(patterns []protocol.Glob) {
	for _, glob := range patterns {
		m.evictGlob(glob)
	}
}

func (m *memory) evictGlob(glob protocol.Glob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.addGlob(glob)
	for key := range m.store.Keys() {
		if glob.Match(m.prefix + key) {
			m.store.Invalidate(key)
		}
	}
	for tag := range m.tags.cells {
		if glob.Match(protocol.StampKey(tag)) {
			m.tags.drop(tag)
		}
	}
}

// clear forgets everything, and refuses what was asked for before. Nothing was missed: Redis may be filled with it.
func (m *memory) clear() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew(m.open.Load() != 0)
}

// empty is for what may have been missed: see doubted. The caller holds mu.
func (m *memory) empty(open bool) {
	m.doubts.Add(1)
	m.renew(open)
}

// renew begins a new generation. The caller holds mu.
func (m *memory) renew(open bool) {
	next := m.current.Add(1)
	if open {
		m.open.Store(next)
	} else {
		m.open.Store(0)
	}
	m.tags = tagTable{}
	m.store.InvalidateAll()
}

// obey does what a hearing says, and reports whether that has opened or closed the memory.
func (m *memory) obey(v verdict) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	wasOpen := m.open.Load() != 0
	m.why = v.why
	switch {
	case v.empty || wasOpen && !v.open:
		m.empty(v.open)
	case v.open && !wasOpen:
		m.open.Store(m.current.Load())
	}
	return wasOpen != v.open
}

func (m *memory) healthy() error {
	if m == nil {
		return nil
	}
	if m.open.Load() != 0 {
		return m.overflow.healthy()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// close empties and closes the memory for good.
func (m *memory) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.ended, m.why = true, ErrClosed
	m.empty(false)
	m.store.StopAllGoroutines()
	m.clock.Stop()
}

// doubted reports whether something may have been missed since a mark.
func (m *memory) doubted(since mark) bool {
	return m != nil && m.doubts.Load() != since.doubts
}
