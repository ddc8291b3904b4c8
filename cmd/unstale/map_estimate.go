package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

// An estimate is the number of matches of a map's patterns in a keyspace, from a sample.
type estimate struct {
	Keys     int64             `json:"keys"`
	Sampled  int64             `json:"sampled"`
	Patterns []patternEstimate `json:"patterns"`
}

// A patternEstimate is one pattern's part of it.
type patternEstimate struct {
	Entity  string `json:"entity"`
	Pattern string `json:"pattern"`
	Glob    string `json:"glob"` // with a * for each value
	Matched int64  `json:"matched"`
}

// estimatePatterns asks Redis.
func estimatePatterns(ctx context.Context, f redisFlags, m *invalidation.Map, sample int64) (*estimate, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	redis, err := keyspace.Open(options)
	if err != nil {
		return nil, err
	}
	patterns := m.Patterns()
	globs := make([]string, len(patterns))
	for i, p := range patterns {
		globs[i] = p.Glob
	}
	found, err := redis.Contents.Estimate(ctx, globs, sample)
	if err = errors.Join(err, redis.Close()); err != nil {
		return nil, fmt.Errorf("estimate what the patterns match: %w", err)
	}
	e := &estimate{Keys: found.Total, Sampled: found.Sampled, Patterns: []patternEstimate{}}
	for i, p := range patterns {
		e.Patterns = append(e.Patterns, patternEstimate{p.Entity, p.Text, p.Glob, found.Matched[i]})
	}
	return e, nil
}

func (e *estimate) print(p process) {
	if e == nil {
		return
	}
	about := "about "
	if e.Sampled >= e.Keys {
		about = ""
	}
	fmt.Fprintf(p.Out, "keyspace: %s, %d of them looked at\n", count(e.Keys, "key"), min(e.Sampled, e.Keys))
	for _, found := range e.Patterns {
		share := 0.0
		if e.Keys > 0 {
			share = 100 * float64(found.Matched) / float64(e.Keys)
		}
		format := "%.0f %%"
		if share > 0 && share < 10 {
			format = "%.2g %%"
		}
		fmt.Fprintf(p.Out, "  %s%s ("+format+")  %s  %s\n", about, count(found.Matched, "key"), share, printable(found.Entity), printable(found.Pattern))
	}
}
