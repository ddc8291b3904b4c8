package worker

import (
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// A record makes the status record of the worker, for MySQL and for Redis. Safe for concurrent use.
type record struct {
	id      string // random, of the process
	name    string
	maps    *mapFile
	warning func() string // of the current map
	health  *health
	pulse   *maintenance.Pulse
	past    *pastSteps
	heavy   *heavyRows
	// why batches are not counted, and what of the checks of entries is refused, or nil
	uncounted, unchecked func() error
}

// now returns what the worker is at.
func (r *record) now() store.WorkerNote {
	n := r.health.note()
	healable := n.State != store.WorkerPaused && n.State != store.WorkerStarting
	if healable && r.pulse.Is(maintenance.ErrHealing) && !r.pulse.Is(maintenance.ErrEmptied) && !r.past.failed.Load() {
		n.State, n.Error = store.WorkerHealing, ""
	}
	if silent := r.health.alive(); silent != nil {
		n.State, n.Error = "stuck", silent.Error()
	}
	if n.State == store.WorkerWorking && n.Error == "" {
		if err := r.uncounted(); err != nil {
			n.Error = store.NotCounted + err.Error()
		} else if err := r.unchecked(); err != nil {
			n.Error = store.NotChecked + err.Error()
		}
	}
	if err := r.maps.refusal(); err != nil {
		n.MapError = err.Error()
	}
	m := r.maps.Map()
	n.Channels = r.maps.routes.recorded()
	n.MapVersion, n.Reads, n.MapWarning, n.Heavy = m.Version(), m.Reads().Version(), r.warning(), r.heavy.lasts()
	return n
}

// complete adds the fields of a status record that do not depend on its state, which began at
// since.
func (r *record) complete(n store.WorkerNote, since time.Time) store.WorkerNote {
	m := r.maps.Map()
	n.ID, n.Name, n.For, n.Channel, n.Format = r.id, r.name, time.Since(since), m.Channel(), string(m.Format())
	n.Lease, n.Announced = r.maps.lease.now()
	if at := r.past.drained.Load(); at != 0 {
		ago := time.Since(time.Unix(0, at))
		n.Drained = &ago
	}
	return n
}

// stopped returns the status record of a worker that has stopped cleanly.
func (r *record) stopped() store.WorkerNote {
	return store.WorkerNote{State: store.WorkerStopped, MapVersion: r.maps.Version()}
}
