package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A heard is one event of the subscription.
type heard struct {
	at      time.Time
	message protocol.Message
	fence   string // not empty: the event is a fence with this text, not a message
	err     error  // not nil: the subscription failed
}

// A listener is the subscriber: a process of the shop that has a local cache and must receive every
// invalidation. One goroutine reads the subscription; fence and events belong to one other
// goroutine.
type listener struct {
	redis  redis.UniversalClient
	sub    *redis.PubSub
	fences string // the channel of fences
	count  int
	events chan heard
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// listen subscribes to channel, and to fences on the same connection, and returns when Redis has
// confirmed both.
func listen(ctx context.Context, client redis.UniversalClient, channel, fences string) (*listener, error) {
	l := &listener{redis: client, fences: fences, events: make(chan heard, 256)}
	l.sub = client.Subscribe(ctx, channel, fences)
	for range 2 {
		if _, err := l.sub.ReceiveTimeout(ctx, answerLimit); err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to %s: %w", channel, err), l.sub.Close())
		}
	}
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.ended.Go(func() { l.read(reading) })
	return l, nil
}

// answerLimit bounds the wait for one reply of Redis, and allows for a machine under load.
const answerLimit = 5 * time.Second

// readPause is the wait after a failed read. It avoids a busy loop while Redis is unreachable.
const readPause = 200 * time.Millisecond

// read passes on events. It drops none: it blocks until the receiver takes the event.
func (l *listener) read(ctx context.Context) {
	for {
		message, err := l.sub.ReceiveMessage(ctx)
		h := heard{at: time.Now(), err: err}
		switch {
		case err != nil:
		case message.Channel == l.fences:
			h.fence = message.Payload
		default:
			h.message, h.err = protocol.DecodeMessage([]byte(message.Payload))
		}
		select {
		case l.events <- h:
		case <-ctx.Done():
			return
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return
		}
	}
}

// fence publishes a text after all earlier messages, and returns the text.
func (l *listener) fence(ctx context.Context) (string, error) {
	l.count++
	text := fmt.Sprint(l.count)
	if err := l.redis.Publish(ctx, l.fences, text).Err(); err != nil {
		return "", fmt.Errorf("publish a fence: %w", err)
	}
	return text, nil
}

func (l *listener) close() error {
	l.stop()
	err := l.sub.Close() // ends the current read
	l.ended.Wait()
	return err
}
