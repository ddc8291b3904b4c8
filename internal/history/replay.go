package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

// A Job unlinks again what a part of the journal says was unlinked, and holds it again for as long.
// A worker heals what it notices by itself; this is for what it cannot know, such as a snapshot
// that somebody restored by hand.
type Job struct {
	MySQL     *session.Sessions
	Unlinker  *keyspace.Unlinker
	Publisher *keyspace.Publisher
	// Channel and Format are those of the messages.
	Channel string
	Format  protocol.Format
	Query   store.JournalQuery
	// DryRun: everything is counted and nothing is done.
	DryRun bool
	// Operator gives the order, for the audit. Empty: the Operator of MySQL.
	Operator string
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

// Problem returns an error about what a Job that ran to its end could not unlink, or nil.
func (r *Result) Problem() error {
	switch {
	case len(r.Damaged) > 0:
		return fmt.Errorf("everything else is done, but these batches of the journal cannot be read: %v; what they unlinked may be "+
			"stale until its TTL, so invalidate again what was written at that time", r.Damaged)
	case r.Refused > 0:
		return fmt.Errorf("redis refuses keys (%d); give its account the permissions and run it again", r.Refused)
	}
	return nil
}

// partKeys and partBytes are how many keys, and bytes of them, are unlinked and published together.
const (
	partKeys  = 10_000
	partBytes = 16 << 20
)

// Run reads the journal from the oldest batch on. It holds a batch and some ten thousand keys at a
// time. After an error, and when ctx ends, the result says how far it came; running it again is
// harmless.
func (r *Job) Run(ctx context.Context) (Result, error) {
	p := part{Job: r, result: Result{Damaged: []uint64{}}, sweeps: map[sweepName]time.Duration{}, began: time.Now()}
	if err := p.announce(ctx); err != nil {
		return p.result, err
	}
	err := store.NewJournal(r.MySQL).ReadJournal(ctx, r.Query, func(_ store.Batch, entries []store.JournalEntry) error {
		p.batches++
		if err := p.writeProgress(ctx); err != nil {
			return err
		}
		for i := range entries {
			p.collect(&entries[i])
			if len(p.set.Targets) >= partKeys || p.bytes >= partBytes {
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
	last := context.WithoutCancel(ctx)
	err = cmp.Or(err, p.Publisher.Goodbye(last, p.Channel))
	if !p.DryRun {
		err = cmp.Or(err, r.actions().EndReplay(last, p.outcome(err), p.result.Rows))
	}
	return p.result, err
}

func (r *Job) actions() *store.Actions {
	return store.NewActions(r.MySQL).As(cmp.Or(r.Operator, r.MySQL.Config.Operator))
}

// A part collects keys until they are flushed.
type part struct {
	*Job
	set    keyspace.TargetSet
	wanted []store.Sweep
	sweeps map[sweepName]time.Duration // of the whole run, with their holds
	result Result

	began, noted  time.Time
	batches, rows int // read since the last flush
	bytes         int // of keys
}

// notePeriod is how often a replay notes how far it is.
const notePeriod = 2 * time.Second

// writeProgress notes for `unstale status` that the replay is under way.
func (p *part) writeProgress(ctx context.Context) error {
	if p.DryRun || time.Since(p.noted) < notePeriod {
		return nil
	}
	p.noted = time.Now()
	return p.actions().NoteReplay(ctx, fmt.Sprintf("%d keys so far", p.result.Keys), time.Since(p.began))
}

// announce notes the replay, also in the audit: before the first key is unlinked.
func (p *part) announce(ctx context.Context) error {
	if p.DryRun {
		return nil
	}
	p.noted = p.began
	return p.actions().BeginReplay(ctx, struct {
		Since    float64   `json:"since_seconds,omitempty"` // 0: the whole journal
		At       time.Time `json:"at,omitzero"`
		Entity   string    `json:"entity,omitempty"`
		EntityID string    `json:"entity_id,omitempty"`
		Channel  string    `json:"channel"`
	}{p.Query.Since.Seconds(), p.Query.At, p.Query.Entity, p.Query.EntityID, p.Channel})
}

// outcome returns what the audit keeps of the end.
func (p *part) outcome(err error) any {
	out := struct {
		Result
		Error string `json:"error,omitempty"`
	}{Result: p.result}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

func (p *part) collect(e *store.JournalEntry) {
	if !e.IsSweep() {
		p.rows++
	}
	for _, key := range e.Keys {
		if _, added := p.set.Add(key, e.Hold()); added {
			p.bytes += len(key)
		}
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
func (p *part) sweep(n sweepName, e *store.JournalEntry) {
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
		if err := store.NewSweeps(p.MySQL).RequestSweeps(ctx, p.wanted); err != nil {
			return err
		}
	}
	p.result.Batches += p.batches
	p.result.Rows += p.rows
	p.batches, p.rows = 0, 0
	p.result.Keys += len(p.set.Targets)
	p.result.Sweeps += len(p.wanted)
	p.set, p.wanted, p.bytes = keyspace.TargetSet{}, p.wanted[:0], 0
	if p.Progress != nil {
		p.Progress(p.result)
	}
	return nil
}

func (p *part) unlink(ctx context.Context) error {
	keys := make([]string, len(p.set.Targets))
	for i, t := range p.set.Targets {
		keys[i] = t.Key
	}
	done, err := p.Unlinker.Unlink(ctx, p.set.Targets)
	if err != nil {
		return fmt.Errorf("unlink keys again: %w", err)
	}
	for _, f := range done.Failures {
		if outage := (*keyspace.Outage)(nil); errors.As(f.Err, &outage) {
			return fmt.Errorf("unlink keys again: %w", f.Err)
		}
	}
	p.result.Refused += len(done.Failures)
	n, err := p.Publisher.Publish(ctx, p.Channel, p.Format, keyspace.News{Keys: keys, Unlinked: done.Born})
	p.result.Messages += n.Messages
	if err != nil {
		return fmt.Errorf("publish keys again: %w", err)
	}
	return nil
}
