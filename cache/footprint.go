package cache

import (
	"context"
	"log/slog"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

const (
	// entryBytes is the size of an entry in L1 without its key, value and tags: the store's node
	// with a kept, and its part of the store's tables.
	entryBytes = 130
	// tagBytes is the size of a tag without its name.
	tagBytes = 110
	// sampled is how many elements of a slice or a map are measured. The others count alike.
	sampled = 16
	// mostMeasured bounds the parts of a value that are measured.
	mostMeasured = 1000
)

// footprint returns how many bytes of the heap an entry in L1 takes, if other values have its tags
// too.
func footprint(key string, value any, tags []string) int {
	m := measuring{left: mostMeasured}
	return entryBytes + allocated(len(key)) + taggedBytes(len(tags)) + m.boxed(reflect.ValueOf(value))
}

// taggedBytes returns the size of a tagged with so many tags.
func taggedBytes(tags int) int {
	if tags == 0 {
		return 0
	}
	return 48 + allocated(8*tags)
}

// allocated returns how many bytes the runtime allocates for n: about its size classes.
func allocated(n int) int {
	step := 8
	if n > 32 {
		step = max(16, 1<<(bits.Len(uint(n))-4))
	}
	return (n + step - 1) / step * step
}

// A shape describes the part of the footprint that all values of a type share.
type shape struct {
	kind   reflect.Kind
	size   int     // of the value itself
	key    *shape  // of a map
	elem   *shape  // of a map, a slice, a pointer, or an array that is not flat
	fields []field // of a struct, those that are not flat
}

type field struct {
	at int
	*shape
}

// flat reports whether a value has nothing behind it.
func (s *shape) flat() bool {
	return s.elem == nil && len(s.fields) == 0 && s.kind != reflect.String && s.kind != reflect.Interface
}

// shapes has the shape of each reflect.Type.
var shapes sync.Map

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(t, map[reflect.Type]*shape{})
	shapes.Store(t, s)
	return s
}

// newShape makes the shape of a type. begun has those of the types that may contain it.
func newShape(t reflect.Type, begun map[reflect.Type]*shape) *shape {
	if s := begun[t]; s != nil {
		return s
	}
	s := &shape{kind: t.Kind(), size: int(t.Size())}
	begun[t] = s
	switch s.kind {
	case reflect.Map:
		s.key, s.elem = newShape(t.Key(), begun), newShape(t.Elem(), begun)
	case reflect.Slice, reflect.Pointer:
		s.elem = newShape(t.Elem(), begun)
	case reflect.Array:
		if elem := newShape(t.Elem(), begun); !elem.flat() {
			s.elem = elem
		}
	case reflect.Struct:
		for i := range t.NumField() {
			// The owner of another field may change it at any time.
			f := t.Field(i)
			if !f.IsExported() || f.Tag.Get("json") == "-" {
				continue
			}
			if of := newShape(f.Type, begun); !of.flat() {
				s.fields = append(s.fields, field{i, of})
			}
		}
	}
	return s
}

// A measuring is the state of one call of footprint.
type measuring struct {
	left int       // how many more parts to measure
	seen []uintptr // what pointers, slices and maps point to, which counts once
}

// isNew reports whether to measure what a value points to.
func (m *measuring) isNew(v reflect.Value, s *shape) bool {
	p := v.Pointer()
	if p == 0 || slices.Contains(m.seen, p) {
		return false
	}
	if !s.elem.flat() { // it may lead back
		m.seen = append(m.seen, p)
	}
	return true
}

// boxed returns how many bytes an interface with a value takes besides its own two words.
func (m *measuring) boxed(v reflect.Value) int {
	if !v.IsValid() {
		return 0
	}
	s := shapeOf(v.Type())
	n := m.behind(v, s)
	if s.kind != reflect.Pointer && s.kind != reflect.Map { // these are in the interface itself
		n += allocated(s.size)
	}
	return n
}

// behind returns how many bytes a value of a shape takes besides its own size.
func (m *measuring) behind(v reflect.Value, s *shape) (n int) {
	if m.left--; m.left < 0 || s.flat() {
		return 0
	}
	switch s.kind {
	case reflect.String:
		return allocated(v.Len())
	case reflect.Interface:
		return m.boxed(v.Elem())
	case reflect.Struct:
		for _, f := range s.fields {
			n += m.behind(v.Field(f.at), f.shape)
		}
		return n
	case reflect.Array:
		return m.elements(v, s)
	}
	if !m.isNew(v, s) {
		return 0
	}
	switch s.kind {
	case reflect.Pointer:
		n = allocated(s.elem.size) + m.behind(v.Elem(), s.elem)
	case reflect.Slice:
		n = allocated(v.Cap()*s.elem.size) + m.elements(v, s)
	case reflect.Map:
		n = s.table(v.Len()) + m.entries(v, s)
	}
	return n
}

// elements returns how many bytes are behind the elements of an array or a slice.
func (m *measuring) elements(v reflect.Value, s *shape) (n int) {
	length := v.Len()
	if s.elem.flat() || length == 0 {
		return 0
	}
	of := min(length, sampled)
	for i := range of {
		n += m.behind(v.Index(i*length/of), s.elem)
	}
	return n * length / of
}

// entries returns how many bytes are behind the keys and elements of a map.
func (m *measuring) entries(v reflect.Value, s *shape) (n int) {
	if s.key.flat() && s.elem.flat() {
		return 0
	}
	of := 0
	for i := v.MapRange(); of < sampled && i.Next(); of++ {
		n += m.behind(i.Key(), s.key) + m.behind(i.Value(), s.elem)
	}
	return n * v.Len() / max(of, 1)
}

// table returns how many bytes the runtime allocates for the table of a map: groups of 8 slots. If
// there are several, at most 7 slots of each are used.
func (s *shape) table(length int) int {
	slots := 8
	for length > 8 && slots*7/8 < length {
		slots *= 2
	}
	return 48 + slots/8*allocated(8+8*(s.key.size+s.elem.size))
}

// defaultBytes is Memory.Bytes if it is zero.
const defaultBytes = 256 << 20

// roomChecked is how many values a full memory drops before their number is compared with that of
// the hits. A memory of more values drops as many as it holds.
const roomChecked = 1000

// A room bounds a memory by the number of values and by their footprints, and counts the values that
// did not fit. Each value weighs its footprint, and at least one share. The room has Memory.Size
// shares, so no more values fit.
type room struct {
	size   int
	share  uint64
	logger *slog.Logger
	reads  *readCounts   // nil: values of no entry of reads
	full   atomic.Uint64 // values that were dropped or refused

	mu      sync.Mutex // guards those below
	checked struct{ full, hits uint64 }
	told    bool
}

func newRoom(config Config) room {
	m := config.Memory
	share := uint64(max(m.Bytes, m.Size)) / uint64(max(m.Size, 1))
	return room{size: m.Size, share: min(share, math.MaxUint32), logger: config.Logger}
}

func (r *room) weight() uint64 { return r.share * uint64(r.size) }

// weigh returns the weight of a value of a footprint, and reports whether the room is large enough.
func (r *room) weigh(footprint int) (weight uint32, fits bool) {
	w := max(uint64(footprint), r.share)
	return uint32(w), w <= min(r.weight(), math.MaxUint32)
}

// deleted counts a value that was dropped from a full memory, unless its tag had been invalidated.
func (r *room) deleted(e otter.DeletionEvent[string, kept]) {
	if e.Cause == otter.CauseOverflow && !e.Value.gone() {
		r.full.Add(1)
		r.reads.numbered(e.Value.note.read()).evict()
	}
}

// warnIfSmall logs once that more values were dropped than given out.
func (r *room) warnIfSmall(hits *stats.Counter, size func() int) {
	full := r.full.Load()
	if full == 0 || !r.mu.TryLock() { // a log handler may use the memory
		return
	}
	defer r.mu.Unlock()
	dropped := full - r.checked.full
	if r.told || dropped < uint64(max(r.size, roomChecked)) {
		return
	}
	now := hits.Snapshot().Hits
	given := now - r.checked.hits
	r.checked.full, r.checked.hits = full, now
	if r.told = given < dropped; !r.told {
		return
	}
	fix := "raise Memory.Size"
	if size() < r.size*9/10 {
		fix = "raise Memory.Bytes"
	}
	r.logger.LogAttrs(context.Background(), slog.LevelWarn, "memory is too small: it drops more values than it gives out",
		slog.Uint64("dropped", dropped), slog.Uint64("given_out", given), slog.String("fix", fix))
}
