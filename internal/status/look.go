package status

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// redisPatience bounds the read of Redis. An outage of Redis must not delay the answer.
const redisPatience = 2 * time.Second

// A Looker looks repeatedly. Not safe for concurrent use.
type Looker struct {
	overview *store.Overview
	redis    *keyspace.Keyspace // nil: none was given

	before *store.Status // the first look that showed the current first row
	source string        // the ID of the outbox, as last read
}

// New returns a Looker. Without a Redis it knows workers only from MySQL.
func New(db *session.Sessions, redis *keyspace.Keyspace) *Looker {
	return &Looker{overview: store.NewOverview(db), redis: redis}
}

// Look reads a status and evaluates it, together with the previous one. If MySQL cannot be read,
// the status has only what workers publish in Redis, if an earlier look has found the outbox's ID.
func (l *Looker) Look(ctx context.Context) (store.Status, Verdict, error) {
	s, err := l.overview.Status(ctx)
	if err == nil {
		l.source = s.Source
	} else {
		s.Source = l.source
	}
	if err == nil || l.source != "" {
		l.askRedis(ctx, &s)
	}
	if err != nil {
		l.before = nil
		return s, Unread(err), err
	}
	v := Judge(s, l.before)
	l.before = First(l.before, s)
	return s, v, nil
}

// LookTwice looks, and a second time if that gives a better answer: see [Doubtful].
func (l *Looker) LookTwice(ctx context.Context) (store.Status, Verdict, error) {
	s, v, err := l.Look(ctx)
	if err != nil || !Doubtful(s) {
		return s, v, err
	}
	if err := sleep.For(ctx, secondLook); err != nil {
		return s, v, err
	}
	return l.Look(ctx)
}

// Unread returns the overall status if MySQL cannot be read.
func Unread(err error) Verdict {
	return Verdict{Level: Unknown, At: time.Now().UTC(), Causes: []Cause{{
		Name: "unread", Level: Unknown, What: session.Explain(err).Error(), Cure: "trying again",
	}}}
}

// askRedis adds what workers and readers publish in Redis to a status.
func (l *Looker) askRedis(ctx context.Context, s *store.Status) {
	if l.redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	addWorkers(ctx, l.redis.StatusHashes, s)
	readReaders(ctx, l.redis.Contents, s)
	if err := l.findOld(ctx, s.Differences, s.Left); err != nil {
		s.OldEntriesError = errors.Join(s.OldEntriesError, err)
	}
}
