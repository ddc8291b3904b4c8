package keyspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// listenPulse is how often a subscription is asked whether it still stands. One that has been silent since it was
	// last asked does not.
	listenPulse = 5 * time.Second

	firstListenPause   = 100 * time.Millisecond
	longestListenPause = 5 * time.Second
)

// A Listener is told what Listen receives, one call at a time. Its functions must not block for long.
type Listener struct {
	// Heard is called for each message.
	Heard func()
	// Subscribed is called with nil whenever Redis has confirmed the subscription, and with an *Outage for each attempt
	// that fails. The loss of one that stood causes no such call, since another attempt follows at once.
	Subscribed func(error)
}

// Listen subscribes to channel and tells l what comes until ctx ends or the Keyspace is closed. It reconnects by
// itself, within five seconds and at random times, so that many listeners do not come at once; messages that are
// published meanwhile are lost, so it fits hints only.
//
// It returns as soon as ctx ends, also while a server does not answer: the client library does not give up a command
// for a context that is cancelled, so what it has under way ends in the background, within Options.Timeout.
func (k *Keyspace) Listen(ctx context.Context, channel string, l Listener) {
	events := make(chan listenEvent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.listen(ctx, channel, events)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case t := <-events:
			if t.message {
				l.Heard()
			} else {
				l.Subscribed(t.err)
			}
		}
	}
}

// A listenEvent is a message, or what became of an attempt to subscribe.
type listenEvent struct {
	message bool
	err     error
}

// listen subscribes again and again.
func (k *Keyspace) listen(ctx context.Context, channel string, events chan<- listenEvent) {
	for pause := firstListenPause; ; {
		subscribed, err := k.subscription(ctx, channel, events)
		if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		if subscribed {
			pause = firstListenPause
		} else if !send(ctx, events, listenEvent{err: err}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((0.5 + rand.Float64()) * float64(pause))):
		}
		if !subscribed {
			pause = min(2*pause, longestListenPause*2/3)
		}
	}
}

// subscription is one attempt, on a connection of its own: it returns when that is lost, or ctx ends, and reports
// whether the subscription stood. Reads have no time limit, because one that runs out in the middle of a message leaves
// the rest of it to be read as the next one; what ends a read is that the connection is closed, by pulse or for ctx.
func (k *Keyspace) subscription(ctx context.Context, channel string, events chan<- listenEvent) (subscribed bool, err error) {
	sub := k.client.Subscribe(ctx, channel) // what goes wrong here shows at Receive
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	pulsing, stop := context.WithCancel(ctx)
	defer stop()
	var alive, silent atomic.Bool
	go func() {
		if !pulse(pulsing, sub, &alive) {
			silent.Store(true)
			_ = sub.Close()
		}
	}()
	for {
		got, err := sub.Receive(ctx)
		if err != nil {
			switch {
			case silent.Load():
				err = fmt.Errorf("no answer for %v: %w", listenPulse, os.ErrDeadlineExceeded)
			case errors.Is(err, redis.ErrClosed), ctx.Err() != nil:
				return subscribed, err
			}
			err = explainDenial(err, []any{"subscribe", channel})
			return subscribed, k.outage(ctx, fmt.Errorf("subscribe to %s: %w", channel, err))
		}
		alive.Store(true)
		switch got.(type) {
		case *redis.Subscription:
			subscribed = true
			if !send(ctx, events, listenEvent{}) {
				return subscribed, ctx.Err()
			}
		case *redis.Message:
			if !send(ctx, events, listenEvent{message: true}) {
				return subscribed, ctx.Err()
			}
		}
	}
}

// pulse pings until ctx ends, and reports false when nothing was received since it last did.
func pulse(ctx context.Context, sub *redis.PubSub, alive *atomic.Bool) bool {
	ticker := time.NewTicker(listenPulse)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-ticker.C:
		}
		if !alive.Swap(false) {
			return ctx.Err() != nil
		}
		_ = sub.Ping(ctx) // what fails here is silence at the next tick
	}
}

func send(ctx context.Context, events chan<- listenEvent, t listenEvent) bool {
	select {
	case <-ctx.Done():
		return false
	case events <- t:
		return true
	}
}
