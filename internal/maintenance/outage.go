package maintenance

import (
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
)

// OutageState names a kind of outage in a word or two, for log and metric.
func OutageState(err error) string {
	if redis, ok := errors.AsType[*keyspace.Outage](err); ok {
		return redisPrefix + redis.State
	}
	return session.State(err)
}

const redisPrefix = "redis "

// OutageStates lists what OutageState may return.
func OutageStates() []string {
	states := session.States()
	for _, s := range keyspace.States() {
		states = append(states, redisPrefix+s)
	}
	return states
}

// needsOperator reports whether a server answers and will go on refusing until somebody changes
// something.
func needsOperator(state string) bool {
	switch state {
	case session.StateFull, session.StateRefused, redisPrefix + keyspace.StateAuth, redisPrefix + keyspace.StateNoPerm,
		redisPrefix + keyspace.StateWrongMode:
		return true
	}
	return false
}

const (
	firstPause   = 200 * time.Millisecond
	outageLimit  = 400 * time.Millisecond
	refusalLimit = 5 * time.Second
)

// Pause returns the wait after the n-th failure in a row, n from 1, jittered. It is twice the first
// one at most where a server is away: two attempts a second cost a recovering server nothing, a
// customer waits for the recovery, and the last attempt before it may itself take a timeout to
// fail.
//
// Where a server answers and refuses, it doubles up to five seconds. Only an operator can end that,
// and each attempt unlinks and publishes the same batch again.
func Pause(err error, n int) time.Duration {
	limit := outageLimit
	if needsOperator(OutageState(err)) {
		limit = refusalLimit
	}
	return sleep.Jitter(min(firstPause<<min(n-1, 10), limit), 0.1)
}

// is reports whether err is or wraps an error of a type.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// IsRedis reports whether err is an outage of Redis.
func IsRedis(err error) bool { return is[*keyspace.Outage](err) }

// IsLoss reports whether Redis has lost what it had acknowledged, which heal cures.
func IsLoss(err error) bool { return is[*keyspace.Loss](err) }

// A BatchSize is how many rows the next claim may take. A batch that is too large as a whole, for its
// deadline or for max_allowed_packet, would fail for ever: so the next one is half as large, down
// to a single row, and they grow again with each one that goes well. One goroutine owns it.
type BatchSize struct{ most, now int }

// NewBatchSize returns a Size that begins with its most.
func NewBatchSize(most int) *BatchSize { return &BatchSize{most, most} }

// BatchSizeFrom returns a Size that begins with first.
func BatchSizeFrom(first, most int) *BatchSize { return &BatchSize{most, first} }

// Now returns how many rows the next claim may take.
func (s *BatchSize) Now() int { return s.now }

// Halve reports whether there was anything to halve.
func (s *BatchSize) Halve() bool {
	if s.now == 1 {
		return false
	}
	s.now /= 2
	return true
}

// Grow follows a batch that went well.
func (s *BatchSize) Grow() { s.now = min(2*s.now, s.most) }
