package cache

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
	"github.com/unstale/unstale/protocol"
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
	m.values.store = otter.Must(&otter.Options[string, kept]{
		MaximumWeight: m.room.weight(), Weigher: func(string, kept) uint32 { return m.values.weight }, OnAtomicDeletion: m.room.deleted, Clock: m.clock,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, kept]) time.Duration {
			// The clock may have passed the end since put looked. With less than 1, otter 2.4.0 keeps
			// the value without an end: see findings/otter-expiry-in-the-past.sh.
			return max(min(time.Duration(e.Value.fresh-e.SnapshotAtNano), m.ttl), 1)
		}),
	})
	return m
}

// get returns the value of a key if it has the tags. A caller that returns it counts it with hit.
func (m *memory) get(key string, tags []string) (k kept, ok bool) {
	if m == nil {
		return kept{}, false
	}
	open := m.gate.open.Load()
	if open == 0 {
		return kept{}, false
	}
	k, ok = m.values.store.GetIfPresent(key)
	if !ok || !k.note.of(open) {
		return kept{}, false
	}
	t, ok := k.value.(*tagged)
	if !ok {
		return k, len(tags) == 0
	}
	k.value, ok = t.has(tags)
	return k, ok
}

// getFresh returns what get returns for a policy, unless the value is due for an early refresh.
func (m *memory) getFresh(key string, p *Policy, eager float64) (k kept, ok bool) {
	if m == nil || p.o.SkipMemory {
		return kept{}, false
	}
	k, ok = m.get(key, p.o.Tags)
	if ok && eager > 0 && early(m.freshFor(k), eager, k.note.cost()) {
		return kept{}, false
	}
	return k, ok
}

// freshFor returns how long a value that get has returned stays fresh.
func (m *memory) freshFor(k kept) time.Duration {
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
	if life = min(life, m.ttl); life <= 0 || !m.values.nameable(key, tags) {
		return false
	}
	bytes := footprint(key, value, tags)
	m.mu.Lock()
	weight, fits := m.room.weigh(bytes + m.values.tags.newBytes(tags))
	open := since.open != 0 && since.open == m.gate.open.Load()
	overrun := open && m.values.log.overrun(since)
	m.values.weight = weight
	kept := open && !overrun && fits && m.values.insert(key, kept{value, fresh, noteOf(since.open, cost, read.index())}, tags, since)
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
	m.room.warnIfSmall(m.hits, m.values.store.EstimatedSize)
	return kept
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

// obey applies a verdict of a subscription. It reports whether that has opened or closed L1, and whether
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
	m.mu.Lock()
	closed := m.gate.healthy()
	m.mu.Unlock()
	return cmp.Or(m.unlinks.elsewhereLately(time.Now()), closed, m.overflow.overflows())
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

const (
	// mostMatches is how many pairs of a value and a pattern may wait to be matched. Beyond that
	// the memory begins a new generation, which empties it.
	mostMatches = 1_000_000
	// sweepChunk is how many tags a sweep matches before it takes the mutex to drop some of them.
	sweepChunk = 64
)

// evictAndLog evicts keys, and logs keys and patterns: put refuses values that were requested
// before. It returns the generation whose values a sweep must check against the patterns.
func (m *memory) evictAndLog(keys []string, globs []protocol.Glob) (generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values.evict(keys)
	generation = m.gate.current.Load()
	for _, glob := range globs {
		if m.values.reaches(glob) {
			m.values.log.addGlob(glob)
			m.waiting++
		}
	}
	if len(globs) > 0 && m.waiting*(m.values.store.EstimatedSize()+len(m.values.tags.cells)) > mostMatches {
		m.renew(m.gate.opened)
	}
	return generation
}

// evictOwn evicts keys that this process itself has unlinked.
func (m *memory) evictOwn(keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values.evict(keys)
}

// sweep evicts the values that patterns match. It takes one pass, and matches without the mutex,
// because values that are put meanwhile were asked for after evictAndLog. A new generation ends it.
func (m *memory) sweep(globs []protocol.Glob, generation uint64) {
	globs = slices.DeleteFunc(slices.Clone(globs), func(glob protocol.Glob) bool { return !m.values.reaches(glob) })
	if len(globs) == 0 {
		return
	}
	matched := func(name string) bool {
		return slices.ContainsFunc(globs, func(glob protocol.Glob) bool { return glob.Match(name) })
	}
	if m.sweepKeys(matched, generation) && m.sweepTags(matched, generation) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.gate.current.Load() == generation {
			m.waiting -= len(globs)
		}
	}
}

// sweepKeys evicts the values of matched keys. It reports false if there is a new generation.
func (m *memory) sweepKeys(matched func(string) bool, generation uint64) bool {
	for key := range m.values.store.Keys() {
		if m.gate.current.Load() != generation {
			return false
		}
		if matched(m.values.prefix + key) {
			m.values.store.Invalidate(key)
		}
	}
	return true
}

// sweepTags evicts the values of matched tags. It reports false if there is a new generation.
func (m *memory) sweepTags(matched func(string) bool, generation uint64) bool {
	m.mu.Lock()
	tags := slices.Collect(maps.Keys(m.values.tags.cells))
	m.mu.Unlock()
	for chunk := range slices.Chunk(tags, sweepChunk) {
		chunk = slices.DeleteFunc(chunk, func(tag string) bool { return !matched(protocol.StampKey(tag)) })
		if !m.dropTags(chunk, generation) {
			return false
		}
	}
	return true
}

// dropTags evicts the values of tags. It reports false if there is a new generation.
func (m *memory) dropTags(tags []string, generation uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate.current.Load() != generation {
		return false
	}
	for _, tag := range tags {
		m.values.tags.drop(tag)
	}
	return true
}

// A tagCell is shared by all values of a tag.
type tagCell struct {
	name string
	gone atomic.Bool
}

// looks is how many cells a tagTable checks for each cell that it adds. With two, it would shrink
// no faster than it grows.
const looks = 4

// A tagTable finds the cells of tags that some value in L1 has. It removes unused cells in small
// steps, since no caller should wait for a pass over all of them. It has at most a few times as
// many cells as needed. The zero table is empty. The caller guards it.
type tagTable struct {
	cells map[string]weak.Pointer[tagCell]
	ring  []namedCell // all cells, and some that were dropped
	hand  int         // which one of ring is looked at next
}

type namedCell struct {
	tag  string
	cell weak.Pointer[tagCell]
}

// cell returns the cell of a tag.
func (t *tagTable) cell(tag string) *tagCell {
	if cell := t.cells[tag].Value(); cell != nil {
		return cell
	}
	cell := &tagCell{name: tag}
	if t.cells == nil {
		t.cells = map[string]weak.Pointer[tagCell]{}
	}
	t.cells[tag] = weak.Make(cell)
	t.ring = append(t.ring, namedCell{tag, t.cells[tag]})
	for range looks {
		t.dropUnused()
	}
	return cell
}

// newBytes returns how many bytes the cells of tags would add.
func (t *tagTable) newBytes(tags []string) (bytes int) {
	for _, tag := range tags {
		if t.cells[tag].Value() == nil {
			bytes += tagBytes + allocated(len(tag))
		}
	}
	return bytes
}

// dropUnused removes the next cell if no value has it.
func (t *tagTable) dropUnused() {
	if t.hand >= len(t.ring) {
		t.hand = 0
	}
	at, last := t.ring[t.hand], len(t.ring)-1
	switch current := t.cells[at.tag] == at.cell; {
	case current && at.cell.Value() != nil:
		t.hand++
		return
	case current:
		delete(t.cells, at.tag)
	}
	t.ring[t.hand], t.ring[last] = t.ring[last], namedCell{}
	t.ring = t.ring[:last]
}

// drop ends all values of a tag.
func (t *tagTable) drop(tag string) {
	if cell := t.cells[tag].Value(); cell != nil {
		cell.gone.Store(true)
	}
	delete(t.cells, tag)
}

// values are the values in memory by key and by tag, and a log of the latest evictions. The caller
// guards insert, evict, tags and the log. The store, and the counters of the log, are safe without
// that.
type values struct {
	prefix string
	store  *otter.Cache[string, kept] // by key without the prefix
	log    evictionLog
	tags   tagTable
	weight uint32 // of the value that is being inserted: see room
}

// A kept is a value in L1. The store has it inline in its node. It has three fields and 32 bytes,
// because the compiler keeps no larger struct in registers, and a hit copies it several times: with
// 40 bytes, a hit takes twice as long.
type kept struct {
	value any   // a *tagged for a value with tags
	fresh int64 // until when, by the clock of the memory; it may be removed before
	note  note
}

// A note has what else is known of a value: the low 16 bits of its generation, the cost of its load
// in milliseconds, in 32 bits, and the number of its readCount. A new generation removes all values,
// so these bits distinguish those that a reader meets meanwhile.
type note uint64

func noteOf(generation uint64, cost int64, read uint16) note {
	return note(uint16(generation)) | note(read)<<16 | note(min(cost, math.MaxUint32))<<32
}

func (n note) of(generation uint64) bool { return uint16(n) == uint16(generation) }
func (n note) read() uint16              { return uint16(n >> 16) }
func (n note) cost() int64               { return int64(n >> 32) }

// A tagged is a value with tags, whose cells show whether one was invalidated.
type tagged struct {
	value any
	cells []*tagCell
}

// has returns the value if it was stored with all tags, and none of its tags was invalidated.
func (t *tagged) has(tags []string) (value any, ok bool) {
	if t.gone() {
		return nil, false
	}
	for _, tag := range tags {
		if !slices.ContainsFunc(t.cells, func(cell *tagCell) bool { return cell.name == tag }) {
			return nil, false
		}
	}
	return t.value, true
}

func (t *tagged) gone() bool {
	return slices.ContainsFunc(t.cells, func(cell *tagCell) bool { return cell.gone.Load() })
}

// gone reports whether a tag of the value was invalidated.
func (k kept) gone() bool {
	t, ok := k.value.(*tagged)
	return ok && t.gone()
}

// nameable reports whether messages, which are JSON in UTF-8, can name a key and its tags.
func (v *values) nameable(key string, tags []string) bool {
	unnamed := func(name string) bool { return !utf8.ValidString(name) }
	return !unnamed(v.prefix+key) && !slices.ContainsFunc(tags, unnamed)
}

// insert adds a value, unless an eviction since the mark means it. The log must reach back to the
// mark.
func (v *values) insert(key string, k kept, tags []string, since mark) bool {
	if v.log.meant(since.at, v.prefix+key, tags) {
		return false
	}
	if len(tags) > 0 {
		t := &tagged{k.value, make([]*tagCell, len(tags))}
		for i, tag := range tags {
			t.cells[i] = v.tags.cell(tag)
		}
		k.value = t
	}
	v.store.Set(key, k)
	return true
}

// reaches reports whether a pattern may match the key or a tag version of a value.
func (v *values) reaches(glob protocol.Glob) bool {
	literal := glob.Prefix()
	return slices.ContainsFunc([]string{v.prefix, protocol.StampPrefix}, func(prefix string) bool {
		return strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix)
	})
}

// evict evicts exact keys.
func (v *values) evict(keys []string) {
	for _, name := range keys {
		key, isKey := strings.CutPrefix(name, v.prefix)
		tag, isTag := strings.CutPrefix(name, protocol.StampPrefix)
		if isKey || isTag {
			v.log.addKey(name)
		}
		if isKey {
			v.store.Invalidate(key)
		}
		if isTag {
			v.tags.drop(tag)
		}
	}
}
