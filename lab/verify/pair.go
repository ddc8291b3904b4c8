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
func (r *prover) take(p pair) {
	if r.reader.Gets || r.reader.outside != nil && !r.reader.outside.ready.Tokens {
		return
	}
	select {
	case r.queue <- p:
	default:
	}
}

// prove reads the keys of pairs: immediately, and some of them again at about the time when the
// write is settled.
func (r *prover) prove(ctx context.Context, dice *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-r.queue:
			r.pair(ctx, p)
			if dice.IntN(10) == 0 {
				sleep(ctx, time.Duration(dice.IntN(10_000))*time.Microsecond)
				r.pair(ctx, p)
			}
		}
	}
}

// pair reads a key with a token.
func (r *prover) pair(ctx context.Context, p pair) {
	token, err := outbox.ParseToken(p.Token)
	if err != nil {
		r.reader.find(p.Key, cache.FromLoader.String(), finding{Wrong: fmt.Sprintf("the token %q cannot be read: %v", p.Token, err)})
		return
	}
	began := now()
	var version uint64
	var ok bool
	if r.reader.outside != nil {
		version, ok = r.reader.ask(ctx, p.Key, p.Token)
	} else {
		policy := r.reader.policies[p.Key].After(outbox.NewCheck(r.reader.db, token))
		version, ok = r.reader.fetch(ctx, p.Key, policy, func(ctx context.Context) (string, error) { return r.reader.loader.load(ctx, p.Key) })
	}
	if !ok {
		return
	}
	r.reader.paired.Add(1)
	switch {
	case version >= p.Version || r.reader.Astray: // fetch has checked the bound
	// what was settled may be back until it is healed
	case r.reader.table.excused(began, now(), r.reader.Grace.Nanoseconds(), everybody):
		r.reader.excused.Add(1)
	default:
		r.reader.find(p.Key, cache.FromLoader.String(), finding{Began: began, Wrong: fmt.Sprintf("version %d for a reader that has shown the token of version %d", version, p.Version)})
	}
}
