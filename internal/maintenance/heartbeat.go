package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
)

// A HeartbeatSender sends heartbeats. Safe for concurrent use, except that only one Run may run at a time.
type HeartbeatSender struct {
	Deps
	idle    time.Duration // the longest wait between two polls of MySQL
	limit   time.Duration // of one attempt, the same as of a batch
	sent    prometheus.Counter
	silence silence
}

// NewHeartbeatSender returns a HeartbeatSender of a loop that waits for at most idle between two
// polls. It counts heartbeats with sent, and sends is 1 while they are not withheld.
func NewHeartbeatSender(d Deps, idle time.Duration, sent prometheus.Counter, sends prometheus.Gauge) *HeartbeatSender {
	return &HeartbeatSender{
		Deps: d, idle: idle, limit: d.Store.Sessions.BatchLimit(), sent: sent, silence: silence{log: d.Log, sends: sends},
	}
}

// Run sends heartbeats once per second until ctx ends, and then returns. They show readers that
// messages arrive and how far the invalidation lags.
//
// Run has its own goroutine, so a batch of four seconds or a backlog of many batches does not empty
// the in-process caches of all readers. It sends a heartbeat only if all of these hold:
//
//   - The loop has polled MySQL within the period, or its current batch is within its limit. A
//     loop that hangs, or whose MySQL does not respond, therefore sends none after at most four
//     seconds.
//   - The last step of the loop did not fail, no operator has paused the workers, and all masters
//     of a Cluster are reachable.
//   - The beacon was just checked and has the epoch that the loop has compared with the journal.
//     If Redis was restored to older data, the check finds a new epoch or a loss until the loop
//     has healed Redis, no matter which goroutine noticed first.
//   - All living workers of the outbox publish on the channel. Otherwise it sends the reason.
//
// Run logs errors and tries again one period later. An error never fails a batch: the loop detects
// outages itself.
func (s *HeartbeatSender) Run(ctx context.Context) {
	beaten := map[string]bool{} // the channels that heartbeats were sent on
	sleep.Every(ctx, Period, func(ctx context.Context) {
		beating := s.Channels.Numbered()
		s.leave(ctx, beaten, beating)
		if len(beating) == 0 {
			s.Lease.AnnouncedInBeats(0)
			s.silence.none()
			return
		}
		if err := s.beat(ctx, beating, beaten); ctx.Err() == nil {
			s.silence.recordSend(err)
		}
	})
}

// beat sends a heartbeat on channels and records them in beaten, or returns why it sent none.
func (s *HeartbeatSender) beat(ctx context.Context, channels []HeartbeatChannel, beaten map[string]bool) (held error) {
	// With a shorter limit than a batch has, slow masters would count as unreachable.
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	lease := s.Lease.ForHeartbeats()
	if err := s.Introduce(ctx); err != nil {
		return err
	}
	if err := s.vouch(ctx); err != nil {
		return err
	}
	asOf := *s.State.Proven.Load()
	if asOf.IsZero() {
		return errUnproven
	}
	// A heartbeat that has a number is sent even if the worker is stopped meanwhile. The final
	// message has the next number, so readers would detect a gap and empty their in-process caches.
	deadline, _ := ctx.Deadline()
	ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for _, c := range channels {
		if err := s.Redis.Beat(ctx, c.Name, c.Moved, c.Withheld, asOf); err != nil {
			return fmt.Errorf("publish heartbeat: %w", err)
		}
		beaten[c.Name] = true
		if c.Withheld == "" {
			s.sent.Inc()
		} else if c.Moved == "" {
			held = fmt.Errorf("%w, %q: %s", errChannels, c.Name, c.Withheld)
		}
	}
	s.Lease.AnnouncedInBeats(lease)
	return held
}

// Introduce sets the ID of the outbox that the following heartbeats name.
func (s *HeartbeatSender) Introduce(ctx context.Context) error {
	if s.idle > Period {
		s.Lease.AnnouncedInBeats(0)
		return errIdle
	}
	outboxID, err := s.Source.Read(ctx)
	if err != nil {
		return err
	}
	s.Redis.Introduce(outboxID, s.Lease.ForHeartbeats())
	return nil
}

// vouch returns why no heartbeat may be sent now, or nil. It checks Redis last.
func (s *HeartbeatSender) vouch(ctx context.Context) error {
	if err := s.State.Loop.unpolled(); err != nil {
		return err
	}
	position, err := s.Redis.CheckBeacon(ctx)
	switch {
	case IsLoss(err):
		s.State.LogLoss(err)
		s.State.LossFound()
		return ErrHealing
	case err != nil:
		return err
	case len(s.Redis.Away()) > 0:
		return errShardAway
	case s.State.lossFound.Load():
		return ErrHealing
	}
	return s.State.Loop.vouch(position.Epoch)
}

// leave sends the final message on channels that get no more heartbeats.
func (s *HeartbeatSender) leave(ctx context.Context, beaten map[string]bool, beating []HeartbeatChannel) {
	for channel := range beaten {
		if !slices.ContainsFunc(beating, func(c HeartbeatChannel) bool { return c.Name == channel }) {
			delete(beaten, channel)
			s.sayGoodbye(ctx, channel)
		}
	}
}

// Goodbye sends the final message on all numbered channels, which tells readers to expect nothing
// more from this worker. It works even after ctx has ended, for up to goodbyeLimit.
func (s *HeartbeatSender) Goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeLimit)
	defer cancel()
	for _, c := range s.Channels.Numbered() {
		s.sayGoodbye(ctx, c.Name)
	}
}

func (s *HeartbeatSender) sayGoodbye(ctx context.Context, channel string) {
	if err := s.Redis.Goodbye(ctx, channel); err != nil { // readers also notice missing heartbeats
		s.Log.Debug("cannot send the final message", "channel", channel, "error", err)
	}
}

const (
	// Period is the interval between heartbeats. Readers time out after three periods.
	Period = time.Second
	// goodbyeLimit bounds the sending of the final messages on all channels.
	goodbyeLimit = 500 * time.Millisecond
)

var (
	errUnproven  = errors.New("what waits was not listed yet")
	errShardAway = errors.New("part of redis is away, and rows with keys there wait")
	errChannels  = errors.New("not all workers publish on this channel")
	errIdle      = fmt.Errorf("the idle interval is longer than %v, so heartbeats would not show in time whether mysql can be polled", Period)
)

// A HeartbeatChannel is a channel for heartbeats. Moved is the current map's channel, if it is a different
// one. Withheld is why the channel takes no heartbeat now, or "".
type HeartbeatChannel struct{ Name, Moved, Withheld string }

// An OutboxID reads and caches the ID of the outbox. Safe for concurrent use.
type OutboxID struct {
	sessions *session.Sessions
	id       atomic.Pointer[string]
}

// NewOutboxID returns an OutboxID that reads it from the database of sessions.
func NewOutboxID(s *session.Sessions) *OutboxID { return &OutboxID{sessions: s} }

// Get returns the ID, or an empty string if it has not been read yet.
func (s *OutboxID) Get() string {
	if id := s.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Read returns the ID of the outbox. It asks MySQL until one call succeeds.
func (s *OutboxID) Read(ctx context.Context) (string, error) {
	if id := s.Get(); id != "" {
		return id, nil
	}
	id, err := s.sessions.Source(ctx)
	if err == nil {
		s.id.Store(&id)
	}
	return id, err
}

// silentLimit is how long heartbeats are withheld before a warning is logged: as long as readers
// wait for them.
const silentLimit = 3 * Period

// silence logs and measures that heartbeats are withheld.
type silence struct {
	log   *slog.Logger
	sends prometheus.Gauge
	since time.Time // when it began; zero while heartbeats are sent
	told  []string  // reasons logged since a heartbeat was last sent
}

// recordSend records that a heartbeat was sent, or why not. Readiness ignores this, since rows are
// processed in any case.
func (s *silence) recordSend(err error) {
	if err == nil {
		if len(s.told) > 0 {
			s.log.Info("heartbeats are sent again")
		}
		s.since, s.told = time.Time{}, nil
		s.sends.Set(1)
		return
	}
	s.sends.Set(0)
	if s.since.IsZero() {
		s.since = time.Now()
	}
	why := silenceOf(err)
	if time.Since(s.since) >= silentLimit && !slices.Contains(s.told, why) {
		s.told = append(s.told, why)
		s.log.Warn("heartbeats are withheld, so readers keep nothing in memory", "error", err)
	}
}

// silenceOf returns why heartbeats are withheld, without the details of an outage.
func silenceOf(err error) string {
	for _, why := range []error{errNotPolled, ErrComparing, ErrHealing, errUnstarted, errUnproven, ErrPaused, errShardAway, errIdle, errChannels} {
		if errors.Is(err, why) {
			return why.Error()
		}
	}
	return OutageState(err)
}

// none records that no channel takes heartbeats.
func (s *silence) none() {
	s.since, s.told = time.Time{}, nil
	s.sends.Set(0)
}
