package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	// presencePeriod is how often a worker notes what it is at, and presenceLook how often it looks whether that is another
	// thing, which it notes at once.
	presencePeriod = 2 * time.Second
	presenceLook   = 100 * time.Millisecond
	// lastWordLimit bounds the note that it has stopped.
	lastWordLimit = 500 * time.Millisecond
)

// A presence is what a worker last noted of itself. One goroutine owns it, but for the atomics.
type presence struct {
	id      string           // random, of the process
	last    store.WorkerNote // as noted, whether or not it arrived
	noted   time.Time
	since   time.Time    // of the state
	refused bool         // MySQL refuses the notes, and the log has said so
	failed  atomic.Bool  // the loop's last step; health takes an outage to be over only when all is healed
	drained atomic.Int64 // Unix nanoseconds: when the loop last found no more rows to claim; 0: never
}

// notePresence notes what the worker is at until ctx ends, for `unstale status`. It is a goroutine of its own, so that an
// outage of Redis, or a loop that is stuck, is told. A note that fails harms nothing: what is silent counts as gone.
func (w *engine) notePresence(ctx context.Context) {
	ticker := time.NewTicker(presenceLook)
	defer ticker.Stop()
	for {
		now, p := w.presenceNow(), &w.presence
		if time.Since(p.noted) >= presencePeriod || isNews(p.last, now) {
			w.tellPresence(ctx, now)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// isNews reports whether a note says another thing than the last one. The words of an error may differ each time.
func isNews(last, now store.WorkerNote) bool {
	return now.State != last.State || now.MapError != last.MapError || now.MapWarning != last.MapWarning || now.MapVersion != last.MapVersion || (now.Error == "") != (last.Error == "")
}

// noteStopped notes that the worker has stopped in order.
func (w *engine) noteStopped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	w.tellPresence(ctx, store.WorkerNote{State: store.WorkerStopped, MapVersion: w.maps.Map().Version()})
}

// presenceNow is what the worker is at.
func (w *engine) presenceNow() store.WorkerNote {
	n := w.health.note()
	healable := n.State != store.WorkerPaused && n.State != store.WorkerStarting
	if healable && w.pulse.heals() && !w.presence.failed.Load() {
		n.State, n.Error = store.WorkerHealing, ""
	}
	if silent := w.health.alive(); silent != nil {
		n.State, n.Error = "stuck", silent.Error()
	}
	if err := w.maps.refusal(); err != nil {
		n.MapError = err.Error()
	}
	n.MapVersion, n.MapWarning = w.maps.Map().Version(), w.mapWarning()
	return n
}

func (w *engine) tellPresence(ctx context.Context, n store.WorkerNote) {
	p := &w.presence
	p.noted = time.Now()
	if n.State != p.last.State {
		p.since = p.noted
	}
	p.last = n
	err := w.store.NoteWorker(ctx, w.complete(n, p.since))
	switch {
	case err == nil:
		p.refused = false
	case store.IsRefusal(err) && !p.refused && ctx.Err() == nil:
		p.refused = true
		cure := store.Fix(err)
		if store.MissingGrant(err) != "" {
			cure = "GRANT SELECT, INSERT, DELETE ON cache_outbox_workers to the worker's account; docs/accounts.md lists the grants"
		}
		w.log.Warn("this worker cannot note what it is at, so that `unstale status` does not know of it; trying again", "error", err, "cure", cure)
	}
}

// complete adds the fields of a note that do not depend on its state, which began at since.
func (w *engine) complete(n store.WorkerNote, since time.Time) store.WorkerNote {
	p, m := &w.presence, w.maps.Map()
	n.ID, n.Name, n.For, n.Channel, n.Format = p.id, w.cfg.Name, time.Since(since), m.Channel(), string(m.Format())
	if at := p.drained.Load(); at != 0 {
		ago := time.Since(time.Unix(0, at))
		n.Drained = &ago
	}
	return n
}

// note is what health knows of the worker.
func (h *health) note() store.WorkerNote {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.paused:
		return store.WorkerNote{State: store.WorkerPaused}
	case h.outage != nil:
		return store.WorkerNote{State: h.state, Error: h.outage.Error()}
	case !h.started:
		return store.WorkerNote{State: store.WorkerStarting}
	}
	n := store.WorkerNote{State: store.WorkerWorking}
	if len(h.missing) > 0 {
		n.Error = "part of redis is away: " + strings.Join(h.missing, ",")
	}
	return n
}

func (w *engine) forgetWorkers(ctx context.Context) {
	if err := w.store.ForgetWorkers(ctx); err != nil && ctx.Err() == nil {
		w.log.Debug("the notes of workers that are gone stay; tried again on schedule", "error", err)
	}
}
