package cache

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A progress knows from heartbeats how far behind the invalidation of each outbox is. It has no
// clock. Not safe for concurrent use.
type progress struct {
	limit  time.Duration // of how far behind it may be
	forget time.Duration // how long a proof counts without a new heartbeat
	proofs map[string]outboxProof
}

// An outboxProof is the latest one of an outbox: all that was committed by asOf is invalidated.
type outboxProof struct{ asOf, heard time.Time }

func newProgress(config Memory) progress {
	return progress{limit: config.MaxBehind, forget: silentPeriods * config.Period, proofs: map[string]outboxProof{}}
}

// note processes a heartbeat. Heartbeats of older workers have no position.
func (p *progress) note(b *protocol.Beat, now time.Time) {
	if b.Behind <= 0 {
		return
	}
	last, asOf := p.proofs[b.Source], now.Add(-time.Duration(b.Behind)*time.Millisecond)
	if asOf.Before(last.asOf) { // another worker knows more
		asOf = last.asOf
	}
	p.proofs[b.Source] = outboxProof{asOf, now}
}

// late returns an error that wraps [ErrBehind] if the invalidation of one of the outboxes is behind
// by more than the limit.
func (p *progress) late(sources []string, now time.Time) error {
	for _, source := range sources {
		proof, known := p.proofs[source]
		if !known || now.Sub(proof.heard) > p.forget {
			continue
		}
		if behind := now.Sub(proof.asOf); behind > p.limit {
			return fmt.Errorf("%w: outbox %q, by %s, more than %s", ErrBehind, source, behind.Round(100*time.Millisecond), p.limit)
		}
	}
	return nil
}
