package verify

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

const (
	stocked    = 4000 // values in a reader's memory, in addition to the keys of a turn
	stockFetch = 100  // values that one call fetches
	stockPause = 20 * time.Millisecond
)

// floodPatterns publishes bursts of patterns, as a job with large rows does. No pattern matches a
// key, but L1 has to compare each with all its values.
func floodPatterns(ctx context.Context, t *turn) error {
	epoch, seq := rand.Text(), uint64(0)
	publish := func(m protocol.Message) error {
		seq++
		m.Epoch, m.Seq, m.At = epoch, seq, time.Now()
		if err := t.stage.client.Publish(ctx, channel, m.Append(nil, protocol.FormatEvent)).Err(); err != nil {
			return fmt.Errorf("publish patterns: %w", err)
		}
		return nil
	}
	for range 2 {
		messages, patterns := 5, 200 // few enough for L1 to compare
		if t.dice.IntN(2) == 0 {
			messages, patterns = 10, 1000 // so many that L1 drops all values
		}
		for range messages {
			var m protocol.Message
			for range patterns {
				m.Patterns = append(m.Patterns, fmt.Sprintf("verify:*:none-%d:*", t.dice.IntN(1_000_000)))
			}
			if err := publish(m); err != nil {
				return err
			}
		}
		sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, 1500*time.Millisecond))
	}
	return publish(protocol.Message{Beat: &protocol.Beat{Source: t.stage.sources[0], Last: true}})
}

// keepStock fetches the stock repeatedly to keep it in memory.
func (r *reader) keepStock(ctx context.Context) {
	load := func(_ context.Context, names []string) (map[string]string, error) {
		values := map[string]string{}
		for _, name := range names {
			values[name] = "stock"
		}
		return values, nil
	}
	for first := 0; ctx.Err() == nil; first = (first + stockFetch) % r.Stock {
		names := make([]string, stockFetch)
		for i := range names {
			names[i] = fmt.Sprintf("verify:stock:%d:%d", r.First, first+i)
		}
		if _, err := cache.FetchMany(ctx, r.cache, names, load, r.many); err != nil {
			r.findings.fail(ctx, err)
		}
		sleep(ctx, stockPause)
	}
}
