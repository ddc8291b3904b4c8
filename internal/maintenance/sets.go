package maintenance

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// someAway reports that some sets met an outage that does not affect the others: their slot is
// moving, or their master is unreachable. They wait while the others continue.
type someAway struct {
	sets  int
	first store.Sweep
	err   error
}

func (e *someAway) Error() string {
	return fmt.Sprintf("index sets wait (%d), the first is %q: %v", e.sets, e.first.Name, e.err)
}

func (e *someAway) Unwrap() error { return e.err }

// add counts a set and returns the error that includes it.
func (e *someAway) add(r store.Sweep, err error) *someAway {
	if e == nil {
		e = &someAway{first: r, err: err}
	}
	e.sets++
	return e
}

// sets clears a batch of sets: the small ones together, as one batch of the journal, then the large
// ones in sequence. Unless the error ends the sweep, it is a *someAway.
func (x *executor) sets(ctx context.Context, requests []store.Sweep) (done int, err error) {
	x.watch.beginSets()
	version := x.cfg.Map.Version()
	asked := make([]keyspace.SetRequest, len(requests))
	for i, r := range requests {
		asked[i] = keyspace.SetRequest{Set: r.Name, ID: r.ID}
	}
	taken, err := x.cfg.Redis.TakeSets(ctx, asked, x.publishMembers(ctx))
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
	err = errors.Join(x.postpone(ctx, refused), x.finish(ctx, version, small, taken.Position))
	if err != nil {
		return 0, err
	}
	x.tookSets(len(small))
	done = len(small) + len(refused)
	defer x.watch.setsInHand(0)
	for i, r := range large {
		x.watch.setsInHand(len(large) - i)
		err := x.set(ctx, version, r)
		switch {
		case err == nil:
			done++
		case IsRedis(err) && ctx.Err() == nil:
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

// set clears one large set.
func (x *executor) set(ctx context.Context, version string, r store.Sweep) error {
	taken, err := x.cfg.Redis.TakeSet(ctx, r.Name, r.ID, x.publishMembers(ctx))
	switch {
	case isRefusal(err):
		err = x.postpone(ctx, []refusal{{r, err}})
	case err == nil:
		if err = x.finish(ctx, version, []store.Sweep{r}, taken.Position); err == nil {
			x.tookSets(1)
		}
	}
	if err != nil {
		return fmt.Errorf("sweep set %q: %w", r.Name, err)
	}
	return nil
}

// publishMembers returns a function that publishes deleted members and counts them.
func (x *executor) publishMembers(ctx context.Context) func(members []string) error {
	return func(members []string) error {
		_, err := x.cfg.Publish(ctx, keyspace.News{Keys: members})
		if err == nil {
			n := int64(len(members))
			x.cfg.Metrics.Swept(0, n)
			x.watch.note(store.SweepSet, func(progress *store.SweepProgress) { progress.Unlinked += n })
		}
		return err
	}
}

// tookSets counts sets that were cleared.
func (x *executor) tookSets(sets int) {
	x.cfg.Metrics.Swept(sets, 0)
	x.watch.note(store.SweepSet, func(progress *store.SweepProgress) {
		progress.Scanned += int64(sets)
		progress.Total = max(progress.Total, progress.Scanned)
	})
}

// isRefusal reports whether Redis refused a single name.
func isRefusal(err error) bool {
	var refused *keyspace.Refusal
	return errors.As(err, &refused)
}
