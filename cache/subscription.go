package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	errResubscribed = errors.New("the connection was lost and restored")
	errNoPing       = errors.New("a ping cannot be sent")
	errOldServer    = errors.New("its connection leads to a server that workers have left")
	errMoved        = errors.New("a worker has moved to another channel")
)

// A subscription is one attempt to listen.
type subscription struct {
	l       *listener
	h       *hearing
	backlog *backlog
	left    []string // channels whose confirmation is missing
	stood   bool
	begun   time.Time
	nonce   string // of the PING that has no answer yet
	asked   time.Time
}

// tick sends a PING when one is due. Time advances in the hearing only while no message waits: the
// missing heartbeat may be among the waiting messages.
func (s *subscription) tick(ctx context.Context, sub *redis.PubSub) error {
	now, period := time.Now(), s.l.config.Period
	if s.stood && now.Sub(s.asked) >= period && s.nonce == "" {
		s.nonce, s.asked = rand.Text(), now
		if sub.Ping(ctx, s.nonce) != nil {
			return errNoPing
		}
		s.l.authentic.compareClock(ctx)
	}
	if s.l.redis.alive.left.Load() > s.begun.UnixNano() {
		return errOldServer
	}
	s.admitLateness(now)
	if s.backlog.empty() {
		s.l.obey(s.h.tick(now))
		limit := silentPeriods * period
		if now.Sub(s.h.pong) > limit && (s.stood || now.Sub(s.begun) > limit) {
			return s.h.why // the connection is useless
		}
	}
	return nil
}

// admitLateness restarts the hearing if L1 was shut.
func (s *subscription) admitLateness(now time.Time) {
	if s.l.memory.wasShut() {
		s.l.obey(s.h.doubt(now, "%w", errLate))
	}
}

// apply does what the oldest arrival asks for, as of the time when it came.
func (s *subscription) apply(a *arrival) error {
	s.admitLateness(time.Now())
	switch got := a.got.(type) {
	case error:
		return got
	case *redis.Subscription:
		if !slices.Contains(s.left, got.Channel) {
			return errResubscribed
		}
		if s.left = slices.DeleteFunc(s.left, func(channel string) bool { return channel == got.Channel }); len(s.left) == 0 {
			s.stood = true
			s.l.obey(s.h.subscribe(a.at))
		}
	case *redis.Pong:
		if s.nonce != "" && got.Payload == s.nonce {
			s.nonce = ""
			s.l.obey(s.h.answer(s.asked, a.at))
		}
	case *redis.Message:
		known := len(s.h.channels)
		if s.l.hear(s.h, a); len(s.h.channels) > known {
			return errMoved
		}
	}
	return nil
}
