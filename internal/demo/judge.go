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

// note keeps what was heard. What no change so far makes stale is a fault; something that was heard before is none,
// because messages come at least once.
func (p *player) note(r *round, h heard) error {
	if h.err != nil {
		return fmt.Errorf("listen: %w", h.err)
	}
	for _, name := range slices.Concat(h.message.Keys, h.message.Patterns) {
		if !p.names.owns(name) { // somebody else's, on a given Redis
			continue
		}
		if !p.expected[name] && !r.heard[name] {
			p.fault("%s: the subscriber heard %s, which was not to be heard", p.blame(r, name), name)
		}
		p.keepHeard(r, name, h)
	}
	return nil
}

// keepHeard notes the first time that a round hears a name, for the round and for those that rolled back.
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

// blame is the change that most likely made name stale: one that rolled back, if it would have.
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

// judge compares Redis with what must be there now: nothing of what the change made stale, all the rest. What the
// worker refused is said first, because it explains what follows.
func (p *player) judge(ctx context.Context, r *round) error {
	if err := p.judgeDead(ctx, r); err != nil {
		return err
	}
	missing, err := p.cache.missing(ctx, p.cache.keys)
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
	for _, key := range p.cache.keys {
		switch {
		case stale[key]:
		case missing[key] && p.settling(key):
			settled++
		case missing[key]:
			p.fault("%s: %s is gone, and should have stayed", p.blame(r, key), key)
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

// settling reports whether a key may be gone although no change of this round made it stale: a pattern of an earlier
// one is swept once more when the readers' leases of that time have run out, which a demo on a busy machine lives to
// see.
func (p *player) settling(key string) bool {
	swept, ok := p.swept[key]
	return ok && time.Since(swept) >= p.m.Lease()
}

// count says how many keys of each target are left.
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

// judgeTargets names what is still there and what was not heard.
func (p *player) judgeTargets(r *round, missing map[string]bool) {
	for i, t := range r.targets {
		for _, key := range t.keys {
			if !missing[key] {
				p.fault("%s: %s is still there, and should be gone", r.change.name, key)
			}
		}
		if r.result.Targets[i].HeardMS == nil {
			p.fault("%s: the subscriber heard nothing of %s", r.change.name, t.name)
		}
	}
}

// deadSQL reads what the worker refused. Contract: no lock, the rows after one by primary key; the demo expects none.
const deadSQL = "SELECT id, entity, entity_id, reason, error FROM cache_outbox_dead WHERE id > ? ORDER BY id"

func (p *player) judgeDead(ctx context.Context, r *round) error {
	return eachRow(ctx, p.shop.db, deadSQL, func(rows *sql.Rows) error {
		var entity, id, reason, text string
		if err := rows.Scan(&p.lastDead, &entity, &id, &reason, &text); err != nil {
			return err
		}
		p.fault("%s: the worker dead-lettered the row %s %s: %s: %s", r.change.name, entity, id, reason, text)
		return nil
	}, p.lastDead)
}

// compare looks, at the end, for values that readers would still be served although MySQL says otherwise.
func (p *player) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	stale, err := p.cache.stale(ctx)
	if err != nil {
		return err
	}
	for _, key := range stale {
		p.fault("at the end %s holds what MySQL no longer says", key)
	}
	return nil
}
