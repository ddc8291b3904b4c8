// Package replay is the operator's command of that name: it unlinks again what the journal says was unlinked. The worker
// repairs by itself what a failover of Redis lost: see worker/heal.go.
package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// A Job unlinks again what a part of the journal says was unlinked, and holds it again for as long. A worker heals what it notices by itself; this is
// for what it cannot know, such as a snapshot that somebody restored by hand.
type Job struct {
	Store *store.Store
	Redis *keyspace.Keyspace
	// Channel and Format are those of the messages.
	Channel string
	Format  protocol.Format
	Query   store.JournalQuery
	// DryRun: everything is counted and nothing is done.
	DryRun bool
	// Progress, if set, is called after each part.
	Progress func(Result)
}

// A Result counts what a Job did, or would do.
type Result struct {
	Batches  int `json:"batches"`
	Rows     int `json:"rows"`
	Keys     int `json:"keys"`     // a key that many batches name may count more than once
	Sweeps   int `json:"sweeps"`   // patterns and index sets; workers carry them out
	Refused  int `json:"refused"`  // keys that Redis refuses
	Messages int `json:"messages"` // published

	// Damaged are the ids of batches that cannot be read, and so are not unlinked again.
	Damaged []uint64 `json:"damaged"`
}

// partKeys and partBytes are how many keys, and bytes of them, are unlinked and published together.
const (
	partKeys  = 10_000
	partBytes = 16 << 20
)

// Run reads the journal from the oldest batch on. It holds a batch and some ten thousand keys at a time. After an
// error, and when ctx ends, the result says how far it came; running it again is harmless.
func (r *Job) Run(ctx context.Context) (Result, error) {
	p := part{Job: r, result: Result{Damaged: []uint64{}}, seen: map[string]int{}, sweeps: map[sweepName]time.Duration{}}
	err := r.Store.ReadJournal(ctx, r.Query, func(_ store.Batch, entries []store.Entry) error {
		p.batches++
		for i := range entries {
			p.add(&entries[i])
			if len(p.targets) >= partKeys || p.bytes >= partBytes {
				if err := p.flush(ctx); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}, func(b store.DamagedBatch) { p.result.Damaged = append(p.result.Damaged, b.ID) })
	if err == nil {
		err = p.flush(ctx)
	}
	// Also after an error: by its number readers know whether they have heard all that was said.
	if bye := p.Redis.Goodbye(context.WithoutCancel(ctx), p.Channel); err == nil {
		err = bye
	}
	return p.result, err
}

// A part collects keys until they are flushed.
type part struct {
	*Job
	targets []keyspace.Target
	seen    map[string]int // in targets
	wanted  []store.Sweep
	sweeps  map[sweepName]time.Duration // of the whole run, with their holds
	result  Result

	batches, rows int // read since the last flush
	bytes         int // of keys
}

func (p *part) add(e *store.Entry) {
	if !e.IsSweep() {
		p.rows++
	}
	for _, key := range e.Keys {
		if _, known := p.seen[key]; !known {
			p.seen[key] = len(p.targets)
			p.targets = append(p.targets, keyspace.Target{Key: key})
			p.bytes += len(key)
		}
		t := &p.targets[p.seen[key]]
		t.Hold = max(t.Hold, e.Hold())
	}
	for _, pattern := range e.Patterns {
		p.sweep(sweepName{store.SweepPattern, pattern}, e)
	}
	for _, set := range e.Sets {
		p.sweep(sweepName{store.SweepSet, set}, e)
	}
}

type sweepName struct {
	kind store.SweepKind
	name string
}

// sweep asks for a sweep once, and again where another entry wants a longer hold.
func (p *part) sweep(n sweepName, e *store.Entry) {
	if hold, known := p.sweeps[n]; !known || hold < e.Hold() {
		p.sweeps[n] = e.Hold()
		p.wanted = append(p.wanted, store.Sweep{Kind: n.kind, Name: n.name, HoldMillis: e.HoldMillis})
	}
}

// flush unlinks and publishes the keys, and asks for the sweeps.
func (p *part) flush(ctx context.Context) error {
	if !p.DryRun {
		if err := p.unlink(ctx); err != nil {
			return err
		}
		if err := p.Store.RequestSweeps(ctx, p.wanted); err != nil {
			return err
		}
	}
	p.result.Batches += p.batches
	p.result.Rows += p.rows
	p.batches, p.rows = 0, 0
	p.result.Keys += len(p.targets)
	p.result.Sweeps += len(p.wanted)
	p.targets, p.wanted, p.bytes = nil, p.wanted[:0], 0
	clear(p.seen)
	if p.Progress != nil {
		p.Progress(p.result)
	}
	return nil
}

func (p *part) unlink(ctx context.Context) error {
	keys := make([]string, len(p.targets))
	for i, t := range p.targets {
		keys[i] = t.Key
	}
	done, err := p.Redis.Unlink(ctx, p.targets)
	if err != nil {
		return fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if outage := (*keyspace.Outage)(nil); errors.As(f.Err, &outage) {
			return fmt.Errorf("unlink keys again: %w", f.Err)
		}
	}
	p.result.Refused += len(done.Failures)
	n, err := p.Redis.Publish(ctx, p.Channel, p.Format, keys, nil)
	p.result.Messages += n
	if err != nil {
		return fmt.Errorf("publish keys again: %w", err)
	}
	return nil
}
