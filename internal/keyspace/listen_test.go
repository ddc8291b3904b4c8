package keyspace_test

import (
	"context"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// A listener receives messages, even after a reconnect, and ends with its context, even if the
// server hangs.
func TestListen(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL()), Timeout: time.Second})
	admin := testenv.Client(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, ended := make(chan struct{}, 100), make(chan struct{})
	tell := keyspace.Listener{
		Heard: func() { heard <- struct{}{} },
		Subscribed: func(err error) {
			if err != nil {
				t.Errorf("a subscription that was lost is not renewed at once: %v", err)
			}
		},
	}
	go func() {
		defer close(ended)
		k.Subscriber.Listen(ctx, "wake", tell)
	}()
	hears := func() bool {
		admin.Publish(ctx, "wake", "")
		select {
		case <-heard:
			return true
		default:
			return false
		}
	}
	testenv.Eventually(t, "a message", hears)
	if err := admin.Do(ctx, "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	for len(heard) > 0 {
		<-heard
	}
	testenv.Eventually(t, "a message on a new connection", hears)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("listens on")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}
