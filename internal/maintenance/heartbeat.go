package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A HeartbeatSender sends heartbeats. Safe for concurrent use, except that only one Run may run at a time.
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

const (
	// Period is the interval between heartbeats. Readers time out after three periods.
	Period = time.Second
	// pollLife is how long after a poll heartbeats may be sent: one period, plus as much as a poll
	// may be late.
	pollLife = Period * 5 / 4
	// goodbyeLimit bounds the sending of the final messages on all channels.
	goodbyeLimit = 500 * time.Millisecond
)

var (
	errUnproven  = errors.New("what waits was not listed yet")
	errShardAway = errors.New("part of redis is away, and rows with keys there wait")
	errChannels  = errors.New("not all workers publish on this channel")
	errIdle      = fmt.Errorf("the idle interval is longer than %v, so heartbeats would not show in time whether mysql can be polled", Period)
)

// HeartbeatConfig configures a Sender.
type HeartbeatConfig struct {
	Redis    HeartbeatRedis
	Channels func() []HeartbeatChannel // whose messages have numbers
	Log      *slog.Logger

	Idle  time.Duration        // the longest wait between two polls of MySQL
	Limit time.Duration        // of one attempt, the same as of a batch
	Lease func() time.Duration // the longest one that a reader may take
	// called with the lease of the heartbeats that were sent; zero: none are sent
	Announced func(lease time.Duration)
	// the time up to which all commits are invalidated; zero: unknown
	Proven   func() time.Time
	Lost     func(error) // called with a loss that the Sender finds
	LossSeen func() bool // whether a loss waits for the loop to heal it

	Count interface{ Inc() }        // heartbeats
	Sends interface{ Set(float64) } // 1 while heartbeats are sent, 0 while they are withheld
}

// HeartbeatRedis sends heartbeats.
type HeartbeatRedis interface {
	CheckBeacon(context.Context) (keyspace.Position, error)
	Away() []string
	Introduce(source string, lease time.Duration)
	Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
}

// A HeartbeatChannel is a channel for heartbeats. Moved is the current map's channel, if it is a different
// one. Withheld is why the channel takes no heartbeat now, or "".
type HeartbeatChannel struct{ Name, Moved, Withheld string }

// A HeartbeatSource reads and caches the ID of the outbox. Safe for concurrent use.
type HeartbeatSource struct {
	ask func(context.Context) (string, error)
	id  atomic.Pointer[string]
}

// NewHeartbeatSource returns a Source that reads the ID from MySQL with ask.
func NewHeartbeatSource(ask func(context.Context) (string, error)) *HeartbeatSource {
	return &HeartbeatSource{ask: ask}
}

// Get returns the ID, or an empty string if it has not been read yet.
func (s *HeartbeatSource) Get() string {
	if id := s.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Read returns the ID of the outbox. It asks MySQL until one call succeeds.
func (s *HeartbeatSource) Read(ctx context.Context) (string, error) {
	if id := s.Get(); id != "" {
		return id, nil
	}
	id, err := s.ask(ctx)
	if err == nil {
		s.id.Store(&id)
	}
	return id, err
}

// Reasons why the loop is unhealthy, in addition to outages.
var (
	errNotPolled = errors.New("mysql was not polled for a second")
	ErrHealing   = errors.New("redis went back in time, and is not healed yet")
	errUnstarted = errors.New("the first poll is not over")
	ErrPaused    = errors.New("all workers are paused")
	// ErrEmptied is the ErrHealing of a Redis that has lost everything, stale entries too.
	ErrEmptied = fmt.Errorf("%w: it holds no data, so nothing is stale, and the journal is made to match", ErrHealing)
)

// A Pulse is the health of the loop, which lets another goroutine send heartbeats on time. The loop
// is healthy if it polls MySQL, is not paused, and Redis has everything that was settled. Safe for
// concurrent use.
type Pulse struct {
	mu      sync.Mutex
	stopped error     // why the loop is unhealthy, nil if it is healthy
	polled  time.Time // when MySQL last answered a poll
	batch   time.Time // deadline of the current batch, zero for none
	// the beacon epoch of the last comparison that found Redis complete
	healed string
}

// NewPulse returns the Pulse of a loop that has not polled yet. It is unhealthy until Well.
func NewPulse() *Pulse { return &Pulse{stopped: errUnstarted} }

// Stop marks the loop as unhealthy until Well is called.
func (p *Pulse) Stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = why
}

// Well records that the loop has polled and found no problem.
func (p *Pulse) Well() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.polled = nil, time.Now()
}

// Begin records that a batch has claimed its rows, which counts as a poll, and the batch's
// deadline. End records the end of the batch.
func (p *Pulse) Begin(over time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = over
}

func (p *Pulse) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch, p.polled = time.Time{}, time.Now()
}

// Heal records that Redis has everything, as of a beacon epoch. Every loss starts another epoch.
func (p *Pulse) Heal(epoch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = epoch
}

// now returns why the loop is unhealthy now, or nil.
func (p *Pulse) now() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.stopped == nil && now.Sub(p.polled) > pollLife && !now.Before(p.batch) {
		return errNotPolled
	}
	return p.stopped
}

// Is reports whether the loop is unhealthy for a reason. The reason is ErrHealing while the loop has
// to heal Redis, or to find that nothing needs healing.
func (p *Pulse) Is(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.stopped, why)
}

// vouch is like now, and also checks that the loop was last healed in the given beacon epoch.
func (p *Pulse) vouch(epoch string) error {
	if err := p.now(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != epoch {
		return ErrHealing
	}
	return nil
}

// silentLimit is how long heartbeats are withheld before a warning is logged: as long as readers
// wait for them.
const silentLimit = 3 * Period

// silence logs and measures that heartbeats are withheld.
type silence struct {
	log   *slog.Logger
	sends interface{ Set(float64) }
	since time.Time // when it began; zero while heartbeats are sent
	told  []string  // reasons logged since a heartbeat was last sent
}

// note records that a heartbeat was sent, or why not. Readiness ignores this, since rows are
// processed in any case.
func (s *silence) note(err error) {
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
	for _, why := range []error{errNotPolled, ErrHealing, errUnstarted, errUnproven, ErrPaused, errShardAway, errIdle, errChannels} {
		if errors.Is(err, why) {
			return why.Error()
		}
	}
	return State(err)
}

// none records that no channel takes heartbeats.
func (s *silence) none() {
	s.since, s.told = time.Time{}, nil
	s.sends.Set(0)
}
