// Package look reads the state of an outbox from MySQL and Redis and evaluates it: for `unstale
// status` and for the console.
package look

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/registry"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/spotcheck"
	"github.com/unstale/unstale/internal/verdict"
	"github.com/unstale/unstale/protocol"
)

// redisPatience bounds the read of Redis. An outage of Redis must not delay the answer.
const redisPatience = 2 * time.Second

// A Looker looks repeatedly. Not safe for concurrent use.
type Looker struct {
	overview *operate.Overview
	redis    *keyspace.Keyspace // nil: none was given

	before *operate.Status // the first look that showed the current first row
	source string          // the ID of the outbox, as last read
}

// New returns a Looker. Without a Redis it knows workers only from MySQL.
func New(db *session.Sessions, redis *keyspace.Keyspace) *Looker {
	return &Looker{overview: operate.NewOverview(db), redis: redis}
}

// Look reads a status and evaluates it, together with the previous one. If MySQL cannot be read,
// the status has only what workers publish in Redis, if an earlier look has found the outbox's ID.
func (l *Looker) Look(ctx context.Context) (operate.Status, verdict.Verdict, error) {
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
	v := verdict.Of(s, l.before)
	l.before = verdict.First(l.before, s)
	return s, v, nil
}

// LookTwice looks, and a second time if that gives a better answer: see [verdict.Doubtful].
func (l *Looker) LookTwice(ctx context.Context) (operate.Status, verdict.Verdict, error) {
	s, v, err := l.Look(ctx)
	if err != nil || !verdict.Doubtful(s) {
		return s, v, err
	}
	if err := sleep.For(ctx, verdict.SecondLook); err != nil {
		return s, v, err
	}
	return l.Look(ctx)
}

// Unread returns the overall status if MySQL cannot be read.
func Unread(err error) verdict.Verdict {
	return verdict.Verdict{Level: verdict.Unknown, At: time.Now().UTC(), Causes: []verdict.Cause{{
		Name: "unread", Level: verdict.Unknown, What: session.Explain(err).Error(), Cure: "trying again",
	}}}
}

// askRedis adds what workers and readers publish in Redis to a status.
func (l *Looker) askRedis(ctx context.Context, s *operate.Status) {
	if l.redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	registry.Read(ctx, l.redis.Board, s)
	registry.ReadReaders(ctx, l.redis.Contents, s)
	if err := l.findOld(ctx, s.Differences, s.Left); err != nil {
		s.OldEntriesError = errors.Join(s.OldEntriesError, err)
	}
}

// findOld finds out which old entries Redis still has.
func (l *Looker) findOld(ctx context.Context, lists ...[]operate.OldEntry) error {
	var keys []string
	for _, list := range lists {
		for i := range list {
			keys = append(keys, list[i].Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	heads, err := l.redis.Contents.Heads(ctx, keys)
	if err != nil {
		return err
	}
	for _, list := range lists {
		for i := range list {
			e := &list[i]
			leased, _ := spotcheck.Times(heads[i], strings.HasPrefix(e.Key, protocol.StampPrefix))
			e.State = operate.Gone
			lease := uint64(e.Lease.UnixMicro())
			if heads[i] != "" && (leased == lease || lease == 0 || 0 < leased && leased < e.Before) {
				e.State = operate.Present
			}
		}
		heads = heads[len(list):]
	}
	return nil
}
