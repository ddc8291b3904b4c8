package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/session"
)

const (
	// presencePeriod is how often a worker writes its status record, and presenceLook how often it
	// checks for a change, which it writes immediately.
	presencePeriod = 2 * time.Second
	presenceLook   = 100 * time.Millisecond
	// lastWordLimit bounds the write of the final status record.
	lastWordLimit = 500 * time.Millisecond
)

// A presence writes the status record of a worker to MySQL. One goroutine owns it.
type presence struct {
	record *record
	tell   func(context.Context, operate.WorkerNote) error
	log    *slog.Logger

	last    operate.WorkerNote // as noted, whether or not it arrived
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
		now := p.record.now()
		if time.Since(p.noted) >= presencePeriod || isNews(p.last, now) {
			p.note(ctx, now)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// isNews reports whether a note says another thing than the last one. The words of an error may
// differ each time. That heavy rows are done can wait.
func isNews(last, now operate.WorkerNote) bool {
	return now.Stalled != last.Stalled || now.Heavy != nil && last.Heavy == nil ||
		now.State != last.State || now.MapError != last.MapError || now.MapWarning != last.MapWarning || now.MapVersion != last.MapVersion || (now.Error == "") != (last.Error == "")
}

// stopped writes that the worker has stopped cleanly.
func (p *presence) stopped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	p.note(ctx, p.record.stopped())
}

func (p *presence) note(ctx context.Context, n operate.WorkerNote) {
	p.noted = time.Now()
	if n.State != p.last.State {
		p.since = p.noted
	}
	p.last = n
	err := p.tell(ctx, p.record.complete(n, p.since))
	switch {
	case err == nil:
		p.refused = false
	case session.IsRefusal(err) && !p.refused && ctx.Err() == nil:
		p.refused = true
		cure := session.Fix(err)
		if session.MissingGrant(err) != "" {
			cure = "GRANT SELECT, INSERT, DELETE ON cache_outbox_workers to the worker's account; docs/accounts.md lists the grants"
		}
		p.log.Warn("this worker cannot note what it is at, so that `unstale status` does not know of it; trying again", "error", err, "cure", cure)
	}
}
