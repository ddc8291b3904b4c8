package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/outbox"
)

// A pair is a write whose token is shown to another process, which must read nothing older.
type pair struct {
	Key     int    `json:"key"`
	Version uint64 `json:"version"`
	Token   string `json:"token"`
}

// A prover reads with tokens, for a reader.
type prover struct {
	reader *reader
	queue  chan pair
}

// take queues a pair from the writing process. It drops a pair if the queue is full, or the reader
// only calls Get or is a client that takes no tokens, and does not count it.
func (p *prover) take(one pair) {
	if p.reader.Gets || p.reader.outside != nil && !p.reader.outside.ready.Tokens {
		return
	}
	select {
	case p.queue <- one:
	default:
	}
}

// prove reads the keys of pairs: immediately, and some of them again at about the time when the
// write is settled.
func (p *prover) prove(ctx context.Context, dice *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-p.queue:
			p.pair(ctx, one)
			if dice.IntN(10) == 0 {
				sleep(ctx, time.Duration(dice.IntN(10_000))*time.Microsecond)
				p.pair(ctx, one)
			}
		}
	}
}

// pair reads a key with a token.
func (p *prover) pair(ctx context.Context, one pair) {
	r := p.reader
	token, err := outbox.ParseToken(one.Token)
	if err != nil {
		r.find(one.Key, cache.FromLoader.String(), finding{Wrong: fmt.Sprintf("the token %q cannot be read: %v", one.Token, err)})
		return
	}
	began := now()
	var version uint64
	var ok bool
	if r.outside != nil {
		version, ok = r.ask(ctx, one.Key, one.Token)
	} else {
		policy := r.policies[one.Key].After(outbox.NewCheck(r.db, token))
		version, ok = r.fetch(ctx, one.Key, policy, func(ctx context.Context) (string, error) { return r.loader.load(ctx, one.Key) })
	}
	if !ok {
		return
	}
	r.paired.Add(1)
	switch {
	case version >= one.Version || r.Astray: // fetch has checked the bound
	// what was settled may be back until it is healed
	case r.table.excused(began, now(), r.Grace.Nanoseconds(), everybody):
		r.excused.Add(1)
	default:
		r.find(one.Key, cache.FromLoader.String(), finding{Began: began, Wrong: fmt.Sprintf("version %d for a reader that has shown the token of version %d", version, one.Version)})
	}
}
