package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

const (
	// presencePeriod is how often a worker writes its status record, and presenceLook how often it
	// checks for a change, which it writes immediately.
	presencePeriod = 2 * time.Second
	presenceLook   = 100 * time.Millisecond
	// lastWordLimit bounds the write of the final status record.
	lastWordLimit = 500 * time.Millisecond
)

// A presence writes the status record of a worker to MySQL, and reads those of the other workers,
// for routes. Safe for concurrent use.
type presence struct {
	record  *record
	workers *store.Workers
	routes  *routes
	log     *slog.Logger

	mu       sync.Mutex // guards the rest
	recorded bool       // run writes the record; otherwise the worker has none

	last    store.WorkerNote // as noted, whether or not it arrived
	noted   time.Time
	since   time.Time // of the state
	refused bool      // MySQL refuses the notes, and the log has said so
}

// run writes the status record until ctx ends, for `unstale status`. It is a separate goroutine, to
// report an outage of Redis or a stuck loop as well. A failed write is harmless: a worker without a
// recent record counts as gone.
func (p *presence) run(ctx context.Context) {
	ticker := time.NewTicker(presenceLook)
	defer ticker.Stop()
	for {
		p.mu.Lock()
		p.recorded = true
		if now := p.record.now(); time.Since(p.noted) >= presencePeriod || isNews(p.last, now) {
			_ = p.exchange(ctx, now) // tried again
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// isNews reports whether a note says another thing than the last one. The words of an error may
// differ each time. That heavy rows are done can wait.
func isNews(last, now store.WorkerNote) bool {
	return now.Stalled != last.Stalled || !slices.Equal(now.Channels, last.Channels) || now.Heavy != nil && last.Heavy == nil ||
		now.State != last.State || now.MapError != last.MapError || now.MapWarning != last.MapWarning || now.MapVersion != last.MapVersion || (now.Error == "") != (last.Error == "")
}

// stopped writes that the worker has stopped cleanly.
func (p *presence) stopped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.note(ctx, p.record.stopped()) // silence shows it too
	p.recorded = false
}

// agree exchanges the records if the last exchange is too old, for example because the process was
// frozen. Call it between an UNLINK and its message. A worker without a record reads the others
// each time. A missing privilege is not an error: rows do not wait for it.
func (p *presence) agree(ctx context.Context) error {
	if p.routes.fresh() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.exchange(ctx, p.record.now()); !session.IsRefusal(err) {
		return err
	}
	return nil
}

// exchange writes the record and then reads those of the others, in this order: of two workers that
// start together, at least one sees the other before it publishes. The caller holds mu.
func (p *presence) exchange(ctx context.Context, n store.WorkerNote) error {
	began, err := time.Now(), p.note(ctx, n)
	if err == nil || session.IsRefusal(err) {
		workers, unread := p.workers.Workers(ctx)
		if err = errors.Join(unread, err); unread == nil {
			err = errors.Join(p.routes.join(ctx, p.record.id, workers), err)
		}
	}
	if err == nil && p.recorded {
		p.routes.mu.Lock()
		p.routes.agreed = began
		p.routes.mu.Unlock()
	}
	return err
}

// note writes the record, if the worker has one. It logs once that MySQL refuses it.
func (p *presence) note(ctx context.Context, n store.WorkerNote) error {
	if !p.recorded {
		return nil
	}
	p.noted = time.Now()
	if n.State != p.last.State {
		p.since = p.noted
	}
	p.last = n
	err := p.workers.NoteWorker(ctx, p.record.complete(n, p.since))
	switch {
	case err == nil:
		p.refused = false
	case session.IsRefusal(err) && !p.refused && ctx.Err() == nil:
		p.refused = true
		cure := session.Fix(err)
		if session.MissingGrant(err) != "" {
			cure = "GRANT SELECT, INSERT, DELETE ON cache_outbox_workers to the worker's account; docs/accounts.md lists the grants"
		}
		p.log.Warn("this worker cannot note what it is at, so that `unstale status` does not know of it, and heartbeats are withheld; trying again", "error", err, "cure", cure)
	}
	return err
}
