package worker

import (
	"time"

	"github.com/unstale/unstale/internal/heartbeat"
	"github.com/unstale/unstale/internal/operate"
)

// A record makes the status record of the worker, for MySQL and for Redis. Safe for concurrent use.
type record struct {
	id      string // random, of the process
	name    string
	maps    *mapFile
	warning func() string // of the current map
	health  *health
	pulse   *heartbeat.Pulse
	past    *pastSteps
	heavy   *heavyRows
	// why batches are not counted, and what of the checks of entries is refused, or nil
	uncounted, unchecked func() error
}

// now returns what the worker is at.
func (r *record) now() operate.WorkerNote {
	n := r.health.note()
	healable := n.State != operate.WorkerPaused && n.State != operate.WorkerStarting
	if healable && r.pulse.Is(heartbeat.ErrHealing) && !r.pulse.Is(heartbeat.ErrEmptied) && !r.past.failed.Load() {
		n.State, n.Error = operate.WorkerHealing, ""
	}
	if silent := r.health.alive(); silent != nil {
		n.State, n.Error = "stuck", silent.Error()
	}
	if n.State == operate.WorkerWorking && n.Error == "" {
		if err := r.uncounted(); err != nil {
			n.Error = operate.NotCounted + err.Error()
		} else if err := r.unchecked(); err != nil {
			n.Error = operate.NotChecked + err.Error()
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
func (r *record) complete(n operate.WorkerNote, since time.Time) operate.WorkerNote {
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
func (r *record) stopped() operate.WorkerNote {
	return operate.WorkerNote{State: operate.WorkerStopped, MapVersion: r.maps.Version()}
}
