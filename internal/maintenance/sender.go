package maintenance

import (
	"context"
	"fmt"
	"time"
)

// A Sender sends heartbeats. Safe for concurrent use, except that only one Run may run at a time.
type HeartbeatSender struct {
	cfg     HeartbeatConfig
	source  *HeartbeatSource
	pulse   *Pulse
	silence silence
}

// NewHeartbeat returns a Sender of heartbeats for the loop whose health is pulse.
func NewHeartbeat(cfg HeartbeatConfig, source *HeartbeatSource, pulse *Pulse) *HeartbeatSender {
	return &HeartbeatSender{cfg: cfg, source: source, pulse: pulse, silence: silence{log: cfg.Log, sends: cfg.Sends}}
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
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	beaten := map[string]bool{} // the channels that heartbeats were sent on
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		beating := s.cfg.Channels()
		s.leave(ctx, beaten, beating)
		if len(beating) == 0 {
			s.cfg.Announced(0)
			s.silence.none()
			continue
		}
		err := s.beat(ctx, beating, beaten)
		if ctx.Err() != nil {
			return
		}
		s.silence.note(err)
	}
}

// beat sends a heartbeat on channels and records them in beaten, or returns why it sent none.
func (s *HeartbeatSender) beat(ctx context.Context, channels []HeartbeatChannel, beaten map[string]bool) (held error) {
	// With a shorter limit than a batch has, slow masters would count as unreachable.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limit)
	defer cancel()
	lease := s.cfg.Lease()
	if err := s.Introduce(ctx); err != nil {
		return err
	}
	if err := s.vouch(ctx); err != nil {
		return err
	}
	asOf := s.cfg.Proven()
	if asOf.IsZero() {
		return errUnproven
	}
	// A heartbeat that has a number is sent even if the worker is stopped meanwhile. The final
	// message has the next number, so readers would detect a gap and empty their in-process caches.
	deadline, _ := ctx.Deadline()
	ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for _, c := range channels {
		if err := s.cfg.Redis.Beat(ctx, c.Name, c.Moved, c.Withheld, asOf); err != nil {
			return fmt.Errorf("publish heartbeat: %w", err)
		}
		beaten[c.Name] = true
		if c.Withheld == "" {
			s.cfg.Count.Inc()
		} else if c.Moved == "" {
			held = fmt.Errorf("%w, %q: %s", errChannels, c.Name, c.Withheld)
		}
	}
	s.cfg.Announced(lease)
	return held
}

// Introduce sets the source that the following heartbeats name.
func (s *HeartbeatSender) Introduce(ctx context.Context) error {
	if s.cfg.Idle > Period {
		s.cfg.Announced(0)
		return errIdle
	}
	source, err := s.source.Read(ctx)
	if err != nil {
		return err
	}
	s.cfg.Redis.Introduce(source, s.cfg.Lease())
	return nil
}

// vouch returns why no heartbeat may be sent now, or nil. It checks Redis last.
func (s *HeartbeatSender) vouch(ctx context.Context) error {
	if err := s.pulse.now(); err != nil {
		return err
	}
	position, err := s.cfg.Redis.CheckBeacon(ctx)
	switch {
	case IsLoss(err):
		s.cfg.Lost(err)
		return ErrHealing
	case err != nil:
		return err
	case len(s.cfg.Redis.Away()) > 0:
		return errShardAway
	case s.cfg.LossSeen():
		return ErrHealing
	}
	return s.pulse.vouch(position.Epoch)
}

// leave sends the final message on channels that get no more heartbeats.
func (s *HeartbeatSender) leave(ctx context.Context, beaten map[string]bool, beating []HeartbeatChannel) {
	stays := map[string]bool{}
	for _, c := range beating {
		stays[c.Name] = true
	}
	for channel := range beaten {
		if !stays[channel] {
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
	for _, c := range s.cfg.Channels() {
		s.sayGoodbye(ctx, c.Name)
	}
}

func (s *HeartbeatSender) sayGoodbye(ctx context.Context, channel string) {
	if err := s.cfg.Redis.Goodbye(ctx, channel); err != nil { // readers also notice missing heartbeats
		s.cfg.Log.Debug("cannot send the final message", "channel", channel, "error", err)
	}
}
