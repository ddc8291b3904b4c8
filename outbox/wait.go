package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// The pauses between two queries of Wait.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// Wait returns when the keys of all rows of a token are gone from Redis. It calls [Settled]
// repeatedly, at first every few milliseconds and at last four times per second. db must be the
// primary. It waits as long as ctx allows, so give ctx a deadline: if no worker runs, nothing is
// ever settled. The token's lifetime does not matter.
//
// The error is one of Settled's, or the context's, wrapped.
func Wait(ctx context.Context, db Pool, token Token) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		done, err := Settled(ctx, db, token)
		if err != nil || done {
			return wrap("wait for invalidations", err)
		}
		if err := sleep.For(ctx, pause/2+rand.N(pause)); err != nil {
			return wrap("wait for invalidations", err)
		}
	}
}
