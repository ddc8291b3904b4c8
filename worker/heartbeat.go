package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/protocol"
)

const (
	// heartbeatPeriod is how often heartbeats are sent. Readers wait for three.
	heartbeatPeriod = time.Second
	// pollLife is how long a poll is worth a heartbeat: a period, and as much as a poll may be late.
	pollLife = heartbeatPeriod * 5 / 4
	// goodbyeLimit bounds the goodbye on all channels.
	goodbyeLimit = 500 * time.Millisecond
)

var (
	errUnproven  = errors.New("what waits was not listed yet")
	errShardAway = errors.New("part of redis is away, and rows with keys there wait")
	errIdle      = fmt.Errorf("the idle interval is longer than %v, so nobody knows in time whether mysql can be polled", heartbeatPeriod)
)

// heartbeats tells readers once per second that messages arrive, and how far behind the invalidation
// is. It sends a goodbye when ctx has ended.
//
// It is a goroutine of its own, so that a batch of four seconds or a backlog of many batches does not empty the memory of
// every reader; but it never speaks for itself. A heartbeat is sent only if the loop has polled MySQL within the period
// or has a batch in hand, which began with a claim and fails when its limit is over: so a loop that is stuck, or whose
// MySQL does not answer, is silent within four seconds. It is sent only while the last step of the loop was no failure,
// nobody has paused the workers and no master of a Cluster is away. And only right after the beacon was compared and
// found in the epoch that the loop has compared with the journal: a Redis that is back with older data shows another
// one, or a loss, until the loop has healed it, whoever noticed first.
//
// What goes wrong here is told, and tried again a period later. It never fails a batch: if it is an outage, the loop
// finds that out by itself.
func (w *engine) heartbeats(ctx context.Context) {
	ticker := time.NewTicker(heartbeatPeriod)
	defer ticker.Stop()
	beaten := map[string]bool{} // the channels that heartbeats were sent on
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		beating := w.maps.routes.beating()
		w.leave(ctx, beaten, beating)
		if len(beating) == 0 {
			w.health.noHeartbeats()
			continue
		}
		err := w.beat(ctx, beating, beaten)
		if ctx.Err() != nil {
			return
		}
		w.health.heartbeat(err)
	}
}

// beat sends a heartbeat on routes, and notes their channels, or returns why not.
func (w *engine) beat(ctx context.Context, routes []route, beaten map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, w.batchLimit) // shorter than a batch's, it would find masters away that are slow
	defer cancel()
	if err := w.introduce(ctx); err != nil {
		return err
	}
	if err := w.vouch(ctx); err != nil {
		return err
	}
	asOf := w.prover.proven()
	if asOf.IsZero() {
		return errUnproven
	}
	// Once it has a number it is sent, also where the worker is stopped meanwhile: the goodbye has the next number, and readers
	// would miss this one and empty their memory.
	deadline, _ := ctx.Deadline()
	ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for _, r := range routes {
		if err := w.redis.Beat(ctx, r.channel, r.moved, asOf); err != nil {
			return fmt.Errorf("publish heartbeat: %w", err)
		}
		beaten[r.channel] = true
		w.metrics.heartbeats.Inc()
	}
	return nil
}

// introduce says whose heartbeats follow. It reads the id of the outbox once.
func (w *engine) introduce(ctx context.Context) (err error) {
	if w.cfg.IdleInterval > heartbeatPeriod {
		return errIdle
	}
	source := w.source.get()
	if source == "" {
		if source, err = w.store.Source(ctx); err != nil {
			return err
		}
		w.source.set(source)
	}
	w.redis.Introduce(source, w.maps.Map().Lease())
	return nil
}

// vouch returns why no heartbeat may be sent now, or nil. What it asks Redis comes last.
func (w *engine) vouch(ctx context.Context) error {
	if err := w.pulse.now(); err != nil {
		return err
	}
	position, err := w.redis.CheckBeacon(ctx)
	switch {
	case isLoss(err):
		w.lost(err)
		return errHealing
	case err != nil:
		return err
	case len(w.redis.Away()) > 0:
		return errShardAway
	case w.lossSeen.Load():
		return errHealing
	}
	return w.pulse.vouch(position.Epoch)
}

// lost notes a loss for the loop to heal.
func (w *engine) lost(err error) {
	w.health.lost(err)
	w.lossSeen.Store(true)
	notify(w.wake)
}

// leave says goodbye on channels that get no more heartbeats.
func (w *engine) leave(ctx context.Context, beaten map[string]bool, beating []route) {
	stays := map[string]bool{}
	for _, r := range beating {
		stays[r.channel] = true
	}
	for channel := range beaten {
		if !stays[channel] {
			delete(beaten, channel)
			w.sayGoodbye(ctx, channel)
		}
	}
}

// goodbye ends what was published, in order: readers await nothing more of this worker. It does so also when ctx has
// ended. Where nothing was published it asks nobody.
func (w *engine) goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeLimit)
	defer cancel()
	for _, r := range w.maps.routes.all() {
		if r.format != protocol.FormatArray {
			w.sayGoodbye(ctx, r.channel)
		}
	}
}

func (w *engine) sayGoodbye(ctx context.Context, channel string) {
	if err := w.redis.Goodbye(ctx, channel); err != nil { // silence tells readers, too
		w.log.Debug("cannot say goodbye", "channel", channel, "error", err)
	}
}
