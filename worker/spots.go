package worker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// mostSpread is how often pick looks for a key of another entity.
const mostSpread = 16

// pick returns up to n keys of a settled batch for the spot checks: of rows that were applied in full,
// at random. The first ones are of different entities if possible. It does not keep the batch's own
// memory.
func (b *batch) pick(n int) (keys []maintenance.SpotKey) {
	n = min(n, len(b.set.Targets))
	entities, taken := map[string]bool{}, make(map[string]bool, n)
	for try := 0; try < 8*n && len(keys) < n; try++ {
		c := &b.changes[rand.IntN(len(b.changes))]
		if c.fault != nil || c.away != nil || len(c.targets) == 0 {
			continue
		}
		t := b.set.Targets[c.targets[rand.IntN(len(c.targets))]]
		if taken[t.Key] || entities[c.row.Entity] && try < mostSpread {
			continue
		}
		keys = append(keys, maintenance.SpotKey{
			Key: strings.Clone(t.Key), Entity: strings.Clone(c.row.Entity), ID: strings.Clone(c.row.EntityID), Trace: strings.Clone(c.row.Trace),
			Row: c.row.FirstID, Hold: t.Hold, IsTag: strings.HasPrefix(t.Key, protocol.StampPrefix),
		})
		entities[c.row.Entity], taken[t.Key] = true, true
	}
	return keys
}

// spotRecords implements maintenance.SpotRecords.
type spotRecords struct {
	*store.Minutes
	stale *store.StaleEntries
	spots *spotMetrics
}

func (k spotRecords) KeepStale(ctx context.Context, list []maintenance.SpotStale) error {
	for _, s := range list {
		err := k.stale.Add(ctx, store.StaleEntry{
			Key: s.Key, Row: s.Row, Entity: s.Entity, EntityID: s.ID, Trace: s.Trace, Epoch: s.Position.Epoch, Number: s.Position.N,
			Leased: unixMicros(s.LeasedAt), Unlinked: unixMicros(s.UnlinkedAt), AfterMs: s.After.Milliseconds(),
			TTLMillis: max(s.ExpiresAt.Sub(s.SeenAt).Milliseconds(), 0), Held: s.Held, Repaired: s.Repaired,
		})
		if k.spots.noEntries.keepRefusal(err); err != nil {
			return err
		}
	}
	return k.stale.Trim(ctx)
}

// unixMicros returns microseconds since 1970, 0 for the zero time.
func unixMicros(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

// A spotMetrics implements maintenance.SpotMetrics, and has what is refused for the worker's status.
// Safe for concurrent use.
type spotMetrics struct {
	m                *metrics
	noLook, noRepair atomic.Bool

	noEntries, noDifferences fault // why they cannot be stored
}

// A fault is why an operation is not permitted, or nil. Safe for concurrent use.
type fault struct{ last atomic.Pointer[error] }

// keepRefusal keeps the error of a missing privilege. Others pass.
func (f *fault) keepRefusal(err error) {
	if session.MissingGrant(err) == "" {
		err = nil
	}
	f.last.Store(&err)
}

func (f *fault) get() error {
	if last := f.last.Load(); last != nil {
		return *last
	}
	return nil
}

func (s *spotMetrics) Looked(keys int) { s.m.spotKeys.Add(float64(keys)) }

func (s *spotMetrics) Checked(r maintenance.SpotResult) {
	s.m.spotChecks.WithLabelValues(string(r)).Inc()
}

func (s *spotMetrics) Repaired() { s.m.spotRepairs.Inc() }

func (s *spotMetrics) Off(looks, repairs bool) {
	s.noLook.Store(looks)
	s.noRepair.Store(repairs)
	s.m.spotDenied.WithLabelValues("look").Set(maintenance.OneIf(looks))
	s.m.spotDenied.WithLabelValues("repair").Set(maintenance.OneIf(repairs))
}

// A shadowMetrics implements maintenance.ShadowMetrics.
type shadowMetrics struct{ *spotMetrics }

func (s shadowMetrics) Checked(r maintenance.ShadowResult) {
	s.m.shadows.WithLabelValues(string(r)).Inc()
}

func (s shadowMetrics) Unstored(err error) { s.noDifferences.keepRefusal(err) }

// refused returns what the account of Redis may not do, or nil.
func (s *spotMetrics) refused() error {
	switch {
	case s.noLook.Load():
		return errors.New("the user of Redis may not look at entries")
	case s.noRepair.Load():
		return errors.New("the user of Redis may not unlink stale entries")
	}
	return cmp.Or(s.noEntries.get(), s.noDifferences.get())
}
