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

// Wait waits until the worker has settled all rows of a token. See [Settled], which it calls
// several times per second. db must be the primary.
//
// Give ctx a deadline: if no worker runs, Wait returns only when ctx ends. The error is an error of
// Settled, or wraps the error of ctx.
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
