package verify

import (
	"context"
	"encoding/json"
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

// take queues a pair from the writing process. It drops a pair if the queue is full, or the reader
// only calls Get, and does not count it.
func (r *reader) take(line []byte) {
	var p pair
	if r.Gets || json.Unmarshal(line, &p) != nil {
		return
	}
	select {
	case r.pairs <- p:
	default:
	}
}

// prove reads the keys of pairs: immediately, and some of them again at about the time when the
// write is settled.
func (r *reader) prove(ctx context.Context, dice *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-r.pairs:
			r.pair(ctx, p)
			if dice.IntN(10) == 0 {
				sleep(ctx, time.Duration(dice.IntN(10_000))*time.Microsecond)
				r.pair(ctx, p)
			}
		}
	}
}

// pair reads a key with a token.
func (r *reader) pair(ctx context.Context, p pair) {
	token, err := outbox.ParseToken(p.Token)
	if err != nil {
		r.find(p.Key, cache.FromLoader, finding{Wrong: fmt.Sprintf("the token %q cannot be read: %v", p.Token, err)})
		return
	}
	policy := r.policies[p.Key].After(outbox.NewCheck(r.db, token))
	began := now()
	version, ok := r.fetch(ctx, p.Key, policy, func(ctx context.Context) (string, error) { return r.loader.load(ctx, p.Key) })
	if !ok {
		return
	}
	r.paired.Add(1)
	switch {
	case version >= p.Version || r.Astray: // fetch has checked the bound
	// what was settled may be back until it is healed
	case r.table.excused(began, now(), r.Grace.Nanoseconds(), everybody):
		r.excused.Add(1)
	default:
		r.find(p.Key, cache.FromLoader, finding{Began: began, Wrong: fmt.Sprintf("version %d for a reader that has shown the token of version %d", version, p.Version)})
	}
}
