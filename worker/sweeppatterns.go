package worker

import (
	"context"
	"fmt"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// sweepPatterns scans the keyspace once for all patterns and publishes them. A request whose pattern Redis refuses, or
// one of whose keys it refuses, waits; the others are finished, or kept for their settling sweep.
func (s *sweepRounds) sweepPatterns(ctx context.Context, requests []store.Sweep) (done int, err error) {
	var patterns []string
	asked := map[string][]store.Sweep{}
	for _, r := range requests {
		if asked[r.Name] == nil {
			patterns = append(patterns, r.Name)
		}
		asked[r.Name] = append(asked[r.Name], r)
	}
	s.watch.begin(store.SweepProgress{Kind: store.SweepPattern, Patterns: len(patterns)})
	defer s.watch.over(store.SweepPattern)
	result, err := s.redis.Sweep(ctx, patterns, func(p keyspace.Progress) {
		s.watch.note(store.SweepPattern, func(progress *store.SweepProgress) {
			progress.Scanned, progress.Total, progress.Unlinked = p.Scanned, p.Total, p.Unlinked
		})
	})
	if err != nil {
		return 0, fmt.Errorf("sweep patterns (%d): %w", len(patterns), err)
	}
	s.watch.note(store.SweepPattern, func(progress *store.SweepProgress) {
		progress.Scanned, progress.Total, progress.Unlinked = result.Scanned, result.Total, result.Unlinked
	})
	m := s.maps.Map()
	if _, err := s.publish(ctx, keyspace.News{Patterns: patterns}); err != nil {
		return 0, fmt.Errorf("publish patterns: %w", err)
	}
	var swept []store.Sweep
	var refused []refusal
	for _, p := range result.Patterns {
		if p.Err == nil {
			swept = append(swept, asked[p.Pattern]...)
			continue
		}
		for _, r := range asked[p.Pattern] {
			refused = append(refused, refusal{r, p.Err})
		}
	}
	s.metrics.swept(len(patterns), result.Unlinked)
	if err := s.postpone(ctx, refused); err != nil {
		return 0, err
	}
	return len(requests), s.finishSweeps(ctx, m, swept, result.Position)
}
