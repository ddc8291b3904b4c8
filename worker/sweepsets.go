package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// someAway says that some sets met an outage of their own, in a slot that is moving or of a master that is away. They
// wait, and the others go on.
type someAway struct {
	sets  int
	first store.Sweep
	err   error
}

func (e *someAway) Error() string {
	return fmt.Sprintf("index sets wait (%d), the first is %q: %v", e.sets, e.first.Name, e.err)
}

func (e *someAway) Unwrap() error { return e.err }

// add counts a set, and returns the error that it makes.
func (e *someAway) add(r store.Sweep, err error) *someAway {
	if e == nil {
		e = &someAway{first: r, err: err}
	}
	e.sets++
	return e
}

// sweepSets takes a batch of sets apart: the small ones together, in one batch of the journal, and then the large ones,
// one after the other. The error is a *someAway unless it ends the work.
func (s *sweepRounds) sweepSets(ctx context.Context, requests []store.Sweep) (done int, err error) {
	s.watch.beginSets()
	m := s.maps.Map()
	asked := make([]keyspace.SetRequest, len(requests))
	for i, r := range requests {
		asked[i] = keyspace.SetRequest{Set: r.Name, ID: r.ID}
	}
	taken, err := s.redis.TakeSets(ctx, asked, s.publishMembers(ctx))
	if err != nil {
		return 0, fmt.Errorf("take index sets (%d): %w", len(requests), err)
	}
	var (
		small, large []store.Sweep
		refused      []refusal
		away         *someAway
	)
	for i, r := range requests {
		set := taken.Sets[i]
		switch {
		case isRefusal(set.Err):
			refused = append(refused, refusal{r, set.Err})
		case set.Err != nil:
			away = away.add(r, set.Err)
		case set.Large:
			large = append(large, r)
		default:
			small = append(small, r)
		}
	}
	err = errors.Join(s.postpone(ctx, refused), s.finishSweeps(ctx, m, small, taken.Position))
	if err != nil {
		return 0, err
	}
	s.tookSets(len(small))
	done = len(small) + len(refused)
	defer s.watch.setsInHand(0)
	for i, r := range large {
		s.watch.setsInHand(len(large) - i)
		err := s.sweepSet(ctx, m, r)
		switch {
		case err == nil:
			done++
		case isOutage(err) && ctx.Err() == nil:
			away = away.add(r, err)
		default:
			return done, err
		}
	}
	if away != nil {
		return done, away
	}
	return done, nil
}

// sweepSet takes one large set apart.
func (s *sweepRounds) sweepSet(ctx context.Context, m *invalidation.Map, r store.Sweep) error {
	taken, err := s.redis.TakeSet(ctx, r.Name, r.ID, s.publishMembers(ctx))
	switch {
	case isRefusal(err):
		err = s.postpone(ctx, []refusal{{r, err}})
	case err == nil:
		if err = s.finishSweeps(ctx, m, []store.Sweep{r}, taken.Position); err == nil {
			s.tookSets(1)
		}
	}
	if err != nil {
		return fmt.Errorf("sweep set %q: %w", r.Name, err)
	}
	return nil
}

// publishMembers publishes members that are gone, and counts them.
func (s *sweepRounds) publishMembers(ctx context.Context) func(members []string) error {
	return func(members []string) error {
		_, err := s.publish(ctx, keyspace.News{Keys: members})
		if err == nil {
			n := int64(len(members))
			s.metrics.swept(0, n)
			s.watch.note(store.SweepSet, func(progress *store.SweepProgress) { progress.Unlinked += n })
		}
		return err
	}
}

// tookSets counts sets that are gone.
func (s *sweepRounds) tookSets(sets int) {
	s.metrics.swept(sets, 0)
	s.watch.note(store.SweepSet, func(progress *store.SweepProgress) {
		progress.Scanned += int64(sets)
		progress.Total = max(progress.Total, progress.Scanned)
	})
}

// isRefusal reports whether Redis refuses one name.
func isRefusal(err error) bool {
	var refused *keyspace.Refusal
	return errors.As(err, &refused)
}
