package cache

import (
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

// clockResolution is by how much a value in memory may outlive its time.
const clockResolution = 10 * time.Millisecond

// A memory keeps values in this process. It gives out none unless it is open, and takes none that
// an eviction has reached since the value was asked for. A nil memory is always closed.
type memory struct {
	ttl     time.Duration
	clock   *otter.CoarseClock
	hits    *stats.Counter // values that were given out: not all that the store has are
	evicted atomic.Uint64  // invalidations received

	unlinks  unlinkWatch
	names    heardNames
	overflow overflow
	room     room
	logger   *slog.Logger

	// mu guards waiting, and what gate and values leave to their caller. It is held while something
	// is put or evicted.
	mu      sync.Mutex
	gate    gate
	values  values
	waiting int // patterns that the values of this generation are yet to be swept for
}

// A mark is taken before a value is asked for: see put.
type mark struct {
	at     uint64 // the number of the next eviction
	globs  uint64 // how many evictions were patterns
	doubts uint64 // so far
	open   uint64 // the generation that was given out, 0 for none
}

var errNotListening = errors.New("nothing is given out from memory: not subscribed yet")

func newMemory(config Config) *memory {
	m := &memory{
		ttl: config.Memory.TTL, clock: otter.NewCoarseClock(clockResolution), hits: stats.NewCounter(),
		gate: gate{why: errNotListening}, values: values{prefix: config.Prefix, log: newEvictionLog()},
		unlinks: newUnlinkWatch(config), names: heardNames{prefix: config.Prefix, logger: config.Logger},
		room: newRoom(config), logger: config.Logger,
	}
	if s := config.Memory.MaxStaleness; s > 0 {
		m.ttl = min(m.ttl, s)
	}
	m.gate.current.Store(1)
	m.values.store = otter.Must(&otter.Options[string, *kept]{
		MaximumWeight: m.room.weight(), Weigher: func(_ string, k *kept) uint32 { return k.weight }, OnAtomicDeletion: m.room.deleted, Clock: m.clock,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, *kept]) time.Duration { return e.Value.life }),
	})
	return m
}

// get returns the value of a key if it has the tags. A caller that returns it counts it with hit.
func (m *memory) get(key string, tags []string) (*kept, bool) {
	if m == nil {
		return nil, false
	}
	open := m.gate.open.Load()
	if open == 0 {
		return nil, false
	}
	k, ok := m.values.store.GetIfPresent(key)
	if !ok {
		return nil, false
	}
	if k.generation != open || k.gone() || !k.bears(tags) {
		return nil, false
	}
	return k, true
}

// freshFor returns how long a value that get has returned stays fresh.
func (m *memory) freshFor(k *kept) time.Duration {
	return max(time.Duration(k.fresh-m.clock.NowNano()), 0)
}

func (m *memory) hit() { m.hits.RecordHits(1) }

// mark returns the current state of the eviction log. Take it before sending the command whose
// answer put stores, and, for a fill, before reading its tag versions.
func (m *memory) mark() mark {
	if m == nil {
		return mark{}
	}
	open := m.gate.open.Load()
	return mark{at: m.values.log.next.Load(), globs: m.values.log.globs.Load(), doubts: m.gate.doubts.Load(), open: open}
}

// put keeps a value for life, at most the configured TTL. cost is the duration of its load in
// milliseconds. read counts its eviction.
//
// It refuses the value if
//   - L1 is closed, or was closed at the mark or since;
//   - an event since the mark has evicted, or may have evicted, the key or one of its tags;
//   - messages cannot name the key or one of its tags; or
//   - its footprint exceeds the limit of L1.
func (m *memory) put(key string, value any, tags []string, since mark, life time.Duration, cost int64, read *readCount) bool {
	fresh := m.clock.NowNano() + int64(life)
	if life = min(life, m.lifetime()); life <= 0 || !m.values.nameable(key, tags) {
		return false
	}
	bytes := footprint(key, value, tags)
	m.mu.Lock()
	weight, fits := m.room.weigh(bytes + m.values.tags.missing(tags))
	open := since.open != 0 && since.open == m.gate.open.Load()
	overrun := open && m.values.log.overrun(since)
	kept := open && !overrun && fits && m.values.insert(key, &kept{value: value, generation: since.open, life: life, fresh: fresh, weight: weight, cost: uint32(min(cost, math.MaxUint32)), read: read}, tags, since)
	m.mu.Unlock()
	switch {
	case overrun:
		m.overflow.refused(m.logger)
	case kept:
		m.overflow.kept(m.logger)
	case open && !fits:
		m.room.full.Add(1)
		read.evict()
	}
	m.room.check(m.hits, m.values.store.EstimatedSize)
	return kept
}

func (m *memory) lifetime() time.Duration {
	if m == nil {
		return 0
	}
	return m.ttl
}

// clear removes everything, and refuses values that were requested before. No message was missed,
// so Redis may be filled with such values.
func (m *memory) clear() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew(m.gate.opened)
}

// empty handles a possible gap: see doubted. The caller holds mu.
func (m *memory) empty(open bool) {
	m.gate.doubts.Add(1)
	m.renew(open)
}

// renew begins a new generation. A shut L1 stays shut. The caller holds mu.
func (m *memory) renew(open bool) {
	m.gate.renew(open)
	m.waiting = 0
	m.values.tags = tagTable{}
	m.values.store.InvalidateAll()
}

// obey applies a verdict of a hearing. It reports whether that has opened or closed L1, and whether
// invalidation is behind now, or no longer.
func (m *memory) obey(v verdict) (changed, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate.ended {
		return false, false
	}
	wasOpen, wasLate := m.gate.opened, m.gate.late != nil
	if m.gate.obey(v) {
		m.empty(v.open)
	}
	return wasOpen != v.open, wasLate != (v.late != nil)
}

func (m *memory) healthy() error {
	if m == nil {
		return nil
	}
	if err := m.unlinks.healthy(time.Now()); err != nil {
		return err
	}
	m.mu.Lock()
	err := m.gate.healthy()
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.overflow.healthy()
}

// wasShut reports whether the memory was shut since it opened.
func (m *memory) wasShut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gate.wasShut()
}

// close empties and closes the memory for good.
func (m *memory) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate.ended {
		return
	}
	m.gate.ended, m.gate.why = true, ErrClosed
	m.empty(false)
	m.values.store.StopAllGoroutines()
	m.clock.Stop()
}

// doubted reports whether a message may have been missed since a mark.
func (m *memory) doubted(since mark) bool {
	return m != nil && m.gate.doubts.Load() != since.doubts
}
