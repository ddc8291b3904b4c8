package cache

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"
)

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
func (r *room) deleted(e otter.DeletionEvent[string, *kept]) {
	if e.Cause == otter.CauseOverflow && !e.Value.gone() {
		r.full.Add(1)
		e.Value.read.evict()
	}
}

// check logs once that more values were dropped than given out.
func (r *room) check(hits *stats.Counter, size func() int) {
	full := r.full.Load()
	if full == 0 || !r.mu.TryLock() {
		return
	}
	dropped := full - r.checked.full
	if r.told || dropped < uint64(max(r.size, roomChecked)) {
		r.mu.Unlock()
		return
	}
	now := hits.Snapshot().Hits
	given := now - r.checked.hits
	r.checked.full, r.checked.hits = full, now
	r.told = given < dropped
	told := r.told
	r.mu.Unlock()
	if !told {
		return
	}
	fix := "raise Memory.Size"
	if size() < r.size*9/10 {
		fix = "raise Memory.Bytes"
	}
	r.logger.LogAttrs(context.Background(), slog.LevelWarn, "memory is too small: it drops more values than it gives out",
		slog.Uint64("dropped", dropped), slog.Uint64("given_out", given), slog.String("fix", fix))
}
