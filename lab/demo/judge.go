package demo

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

func (p *player) fault(format string, args ...any) {
	p.report.Faults = append(p.report.Faults, fmt.Sprintf(format, args...))
}

// note records a message. A name that no change so far makes stale is a fault. A name that arrived
// before is not, because messages are delivered at least once.
func (p *player) note(r *round, h heard) error {
	if h.err != nil {
		return fmt.Errorf("listen: %w", h.err)
	}
	for _, name := range slices.Concat(h.message.Keys, h.message.Patterns) {
		if !p.demo.names.owns(name) { // other applications' messages, on a given Redis
			continue
		}
		if !p.expected[name] && !r.heard[name] {
			p.fault("%s: the subscriber received %s, which no change so far makes stale", p.blame(r, name), name)
		}
		p.keepHeard(r, name, h)
	}
	return nil
}

// keepHeard records when a name first arrived in a round, for this round and for those that rolled
// back.
func (p *player) keepHeard(r *round, name string, h heard) {
	if r.heard[name] {
		return
	}
	r.heard[name] = true
	for _, one := range slices.Concat(p.waiting, []*round{r}) {
		for i, t := range one.targets {
			if t.name == name {
				one.result.Targets[i].HeardMS = milliseconds(max(0, h.at.Sub(one.committed)))
				one.result.Targets[i].Seq = h.message.Seq
			}
		}
	}
}

// blame returns the change that most likely made name stale: a change that rolled back, if it would
// have made name stale.
func (p *player) blame(r *round, name string) string {
	for _, back := range p.waiting {
		for _, t := range back.targets {
			if t.name == name || slices.Contains(t.keys, name) {
				return back.change.name
			}
		}
	}
	return r.change.name
}

// judge compares Redis with the expected state: the change's stale keys are gone, and all other
// keys exist. It reports dead-lettered rows first, because they explain the other faults.
func (p *player) judge(ctx context.Context, r *round) error {
	if err := p.judgeDead(ctx, r); err != nil {
		return err
	}
	missing, err := p.demo.cache.missing(ctx, p.demo.cache.keys)
	if err != nil {
		return err
	}
	stale := map[string]bool{}
	for _, t := range r.targets {
		for _, key := range t.keys {
			stale[key] = true
		}
	}
	kept, settled := 0, 0
	for _, key := range p.demo.cache.keys {
		switch {
		case stale[key]:
		case missing[key] && p.settling(key):
			settled++
		case missing[key]:
			p.fault("%s: %s is gone, but must stay", p.blame(r, key), key)
		default:
			kept++
		}
	}
	for _, one := range slices.Concat(p.waiting, []*round{r}) {
		one.count(missing)
		one.result.Judged, one.result.Kept, one.result.Settled = true, kept, settled
	}
	p.judgeTargets(r, missing)
	for _, t := range r.targets {
		for _, key := range t.keys {
			if _, known := p.swept[key]; t.pattern && !known {
				p.swept[key] = r.committed
			}
		}
	}
	return nil
}

// settling reports whether a key may be gone although no change of this round made it stale. The
// second sweep for the pattern of an earlier change can delete it, once the readers' leases of that
// time have expired. On a busy machine the demo can run that long.
func (p *player) settling(key string) bool {
	swept, ok := p.swept[key]
	return ok && time.Since(swept) >= p.demo.m.Lease()
}

// count counts the remaining keys of each target.
func (r *round) count(missing map[string]bool) {
	for i, t := range r.targets {
		left := 0
		for _, key := range t.keys {
			if !missing[key] {
				left++
			}
		}
		r.result.Targets[i].Left = left
	}
}

// judgeTargets reports the keys that still exist and the messages that did not arrive.
func (p *player) judgeTargets(r *round, missing map[string]bool) {
	for i, t := range r.targets {
		for _, key := range t.keys {
			if !missing[key] {
				p.fault("%s: %s is still in Redis, but must be gone", r.change.name, key)
			}
		}
		if r.result.Targets[i].HeardMS == nil {
			p.fault("%s: the subscriber received no message for %s", r.change.name, t.name)
		}
	}
}

// deadSQL reads the dead-lettered rows. Contract: no lock, the rows after an ID by primary key; the
// demo expects none.
const deadSQL = "SELECT id, entity, entity_id, reason, error FROM cache_outbox_dead WHERE id > ? ORDER BY id"

func (p *player) judgeDead(ctx context.Context, r *round) error {
	return eachRow(ctx, p.demo.shop.db, deadSQL, func(rows *sql.Rows) error {
		var entity, id, reason, text string
		if err := rows.Scan(&p.lastDead, &entity, &id, &reason, &text); err != nil {
			return err
		}
		p.fault("%s: the worker dead-lettered the row %s %s: %s: %s", r.change.name, entity, id, reason, text)
		return nil
	}, p.lastDead)
}

// compare looks, at the end, for cached values that differ from MySQL.
func (p *player) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	stale, err := p.demo.cache.stale(ctx)
	if err != nil {
		return err
	}
	for _, key := range stale {
		p.fault("at the end, the cached value of %s differs from MySQL", key)
	}
	return nil
}
