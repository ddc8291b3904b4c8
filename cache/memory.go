package cache

import (
	"errors"
	"log/slog"
	"slices"
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
	room     room
	logger   *slog.Logger

	mu      sync.Mutex // held while something is put or evicted
	log     evictionLog
	tags    tagTable
	waiting int   // patterns that the values of this generation are yet to be swept for
	opened  bool  // by the hearing, and since then perhaps shut
	why     error // for being closed
	late    error // the invalidation is behind, while it is open
	ended   bool  // nothing opens it any more
}

// A kept value. Its own tags' cells say whether a tag was invalidated.
type kept struct {
	value      any
	generation uint64
	life       time.Duration
	tags       []*tagCell
	weight     uint32 // see room
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
		why: errNotListening, log: newEvictionLog(), room: newRoom(config), logger: config.Logger,
	}
	if s := config.Memory.MaxStaleness; s > 0 {
		m.ttl = min(m.ttl, s)
	}
	m.current.Store(1)
	m.store = otter.Must(&otter.Options[string, *kept]{
		MaximumWeight: m.room.weight(), Weigher: func(_ string, k *kept) uint32 { return k.weight }, OnAtomicDeletion: m.room.deleted, Clock: m.clock,
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
// something since the mark has evicted the key or one of its tags, or may have; or no message can name one of them; or its
// bytes are more than the memory has room for.
func (m *memory) put(key string, value any, bytes int, tags []string, since mark, life time.Duration) bool {
	if life = min(life, m.lifetime()); life <= 0 || !m.nameable(key, tags) {
		return false
	}
	weight, fits := m.room.weigh(key, bytes)
	m.mu.Lock()
	open := since.open != 0 && since.open == m.open.Load()
	overrun := open && m.log.overrun(since.at)
	kept := open && !overrun && fits && m.insert(key, &kept{value: value, generation: since.open, life: life, weight: weight}, tags, since)
	m.mu.Unlock()
	switch {
	case overrun:
		m.overflow.refused(m.logger)
	case kept:
		m.overflow.kept(m.logger)
	case open && !fits:
		m.room.full.Add(1)
	}
	m.checkRoom()
	return kept
}

// nameable reports whether messages can name a key and its tags: they are JSON, in which all is UTF-8.
func (m *memory) nameable(key string, tags []string) bool {
	unnamed := func(name string) bool { return !utf8.ValidString(name) }
	return !unnamed(m.prefix+key) && !slices.ContainsFunc(tags, unnamed)
}

// insert is put where the log reaches back to the mark. The caller holds mu.
func (m *memory) insert(key string, k *kept, tags []string, since mark) bool {
	if m.log.hit(since.at, m.prefix+key) {
		return false
	}
	for _, tag := range tags {
		if m.log.hit(since.at, protocol.StampKey(tag)) {
			return false
		}
	}
	k.tags = m.cells(tags)
	m.store.Set(key, k)
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

// clear forgets everything, and refuses what was asked for before. Nothing was missed: Redis may be filled with it.
func (m *memory) clear() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew(m.opened)
}

// empty is for what may have been missed: see doubted. The caller holds mu.
func (m *memory) empty(open bool) {
	m.doubts.Add(1)
	m.renew(open)
}

// renew begins a new generation. What was shut stays so. The caller holds mu.
func (m *memory) renew(open bool) {
	before, next := m.open.Load(), m.current.Add(1)
	switch {
	case !open:
		m.open.Store(0)
	case !m.opened:
		m.open.Store(next)
	case before != 0:
		m.open.CompareAndSwap(before, next)
	}
	m.opened, m.waiting = open, 0
	m.tags = tagTable{}
	m.store.InvalidateAll()
}

// obey does what a hearing says. It reports whether that has opened or closed the memory, and whether
// the invalidation has begun or ceased to be behind.
func (m *memory) obey(v verdict) (changed, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false, false
	}
	wasOpen, wasLate := m.opened, m.late != nil
	m.why, m.late = v.why, v.late
	switch {
	case v.empty || wasOpen && !v.open:
		m.empty(v.open)
	case v.open && !wasOpen:
		m.open.Store(m.current.Load())
		m.opened = true
	}
	return wasOpen != v.open, wasLate != (v.late != nil)
}

func (m *memory) healthy() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	why, late, opened := m.why, m.late, m.opened
	m.mu.Unlock()
	switch {
	case m.open.Load() == 0 && opened:
		return errShut
	case m.open.Load() == 0:
		return why
	case late != nil:
		return late
	}
	return m.overflow.healthy()
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
