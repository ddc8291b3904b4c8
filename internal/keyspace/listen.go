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
	// listenPulse is the interval of checks of a subscription. It counts as lost if it has received
	// nothing since the last check.
	listenPulse = 5 * time.Second

	firstListenPause   = 100 * time.Millisecond
	longestListenPause = 5 * time.Second
)

// A Listener handles the events of Listen, one call at a time. Its functions must not block for
// long.
type Listener struct {
	// Heard is called for each message.
	Heard func()
	// Subscribed is called with nil whenever Redis has confirmed the subscription, and with an
	// *Outage for each attempt that fails. It is not called for the loss of a subscription, since
	// another attempt follows immediately.
	Subscribed func(error)
}

// A Subscriber receives messages.
type Subscriber struct{ nodes *Nodes }

// Listen subscribes to channel and calls l for messages until ctx ends or the Keyspace is closed.
// It reconnects automatically within five seconds, at random times to spread many listeners.
// Messages that are published meanwhile are lost, so use it only for hints.
//
// It returns as soon as ctx ends, even if a server does not answer. The client library does not
// abandon a command when its context is canceled, so running commands end in the background, within
// Options.Timeout.
func (s *Subscriber) Listen(ctx context.Context, channel string, l Listener) {
	events := make(chan listenEvent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.listen(ctx, channel, events)
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
func (s *Subscriber) listen(ctx context.Context, channel string, events chan<- listenEvent) {
	for pause := firstListenPause; ; {
		subscribed, err := s.subscription(ctx, channel, events)
		if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		if subscribed {
			pause = firstListenPause
		} else if !deliver(ctx, events, listenEvent{err: err}) {
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

// subscription makes one attempt, on a separate connection. It returns when the connection is lost
// or ctx ends, and reports whether the subscription was established. Reads have no time limit: a
// timeout in the middle of a message would leave the rest of it to be parsed as the next one.
// Closing the connection, by pulse or for ctx, ends a read.
func (s *Subscriber) subscription(ctx context.Context, channel string, events chan<- listenEvent) (subscribed bool, err error) {
	sub := s.nodes.client.Subscribe(ctx, channel) // what goes wrong here shows at Receive
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
			return subscribed, s.nodes.outage(ctx, fmt.Errorf("subscribe to %s: %w", channel, err))
		}
		alive.Store(true)
		_, confirmed := got.(*redis.Subscription)
		_, heard := got.(*redis.Message)
		subscribed = subscribed || confirmed
		if (confirmed || heard) && !deliver(ctx, events, listenEvent{message: heard}) {
			return subscribed, ctx.Err()
		}
	}
}

// pulse pings until ctx ends. It returns false when nothing was received since the last ping.
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

func deliver(ctx context.Context, events chan<- listenEvent, t listenEvent) bool {
	select {
	case <-ctx.Done():
		return false
	case events <- t:
		return true
	}
}
