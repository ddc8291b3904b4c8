package maintenance

import (
	"context"
	"fmt"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// patterns scans the keyspace once for all patterns and publishes them. If Redis refuses a pattern
// or one of its keys, the request is postponed. The others are finished, or kept for their second
// sweep.
func (x *executor) patterns(ctx context.Context, requests []store.Sweep) (done int, err error) {
	var patterns []string
	asked := map[string][]store.Sweep{}
	for _, r := range requests {
		if asked[r.Name] == nil {
			patterns = append(patterns, r.Name)
		}
		asked[r.Name] = append(asked[r.Name], r)
	}
	x.watch.begin(store.SweepProgress{Kind: store.SweepPattern, Patterns: len(patterns)})
	defer x.watch.over(store.SweepPattern)
	result, err := x.cfg.Redis.Sweep(ctx, patterns, func(p keyspace.Progress) {
		x.watch.note(store.SweepPattern, func(progress *store.SweepProgress) {
			progress.Scanned, progress.Total, progress.Unlinked = p.Scanned, p.Total, p.Unlinked
		})
	})
	if err != nil {
		return 0, fmt.Errorf("sweep patterns (%d): %w", len(patterns), err)
	}
	x.watch.note(store.SweepPattern, func(progress *store.SweepProgress) {
		progress.Scanned, progress.Total, progress.Unlinked = result.Scanned, result.Total, result.Unlinked
	})
	version := x.cfg.Map.Version()
	if _, err := x.cfg.Publish(ctx, keyspace.News{Patterns: patterns}); err != nil {
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
	x.cfg.Metrics.Swept(len(patterns), result.Unlinked)
	if err := x.postpone(ctx, refused); err != nil {
		return 0, err
	}
	return len(requests), x.finish(ctx, version, swept, result.Position)
}
