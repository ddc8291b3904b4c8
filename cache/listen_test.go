package cache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// listenerTo returns a Cache that does not listen to the channel of its memory.
func listenerTo(t *testing.T, config Config) *Cache {
	t.Helper()
	memory := config.Memory
	config.Memory = Memory{}
	config.Logger = slog.New(slog.DiscardHandler)
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.config.Memory = memory
	c.memory = newMemory(c.config)
	c.listener = newListener(c.config, c.redis, c.memory, nil, &c.run, &c.counts)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func beatOf(seq uint64) string {
	m := protocol.Message{Epoch: "e", Seq: seq, At: time.Now(), Beat: &protocol.Beat{Source: "s", First: seq == 1}}
	return string(m.Append(nil, protocol.FormatEvent))
}

// The state counts from the arrival of a message, and a pong from when its PING was sent, even if
// they are applied much later.
func TestApplyCountsFromArrival(t *testing.T) {
	t.Parallel()
	const period = time.Hour // no machine is late by that
	now := time.Now()
	old := now.Add(-period * 5 / 2)
	for _, c := range []struct {
		name        string
		beat, asked time.Time
		want        string
	}{
		{"both are new", now, now, ""},
		{"the heartbeat is old", old, now, `no heartbeat of outbox "s" for 3h0m0s`},
		{"the ping is old", now, old, "no pong for 3h0m0s"},
	} {
		cache := listenerTo(t, Config{Memory: Memory{Size: 10, Channel: "c", Sources: []string{"s"}, Period: period}})
		s := &subscription{l: cache.listener, h: newHearing(cache.config.Memory), backlog: newBacklog(), left: []string{"c"}}
		apply := func(at time.Time, got any) {
			t.Helper()
			a := &arrival{at: at, got: got}
			if m, ok := got.(*redis.Message); ok {
				a.decode(m.Payload)
			}
			if err := s.apply(a); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		apply(old.Add(-time.Second), &redis.Subscription{Channel: "c"})
		s.h.since = old.Add(-2 * period) // long ago
		apply(c.beat, &redis.Message{Payload: beatOf(1)})
		s.h.since = old.Add(-2 * period) // the middle of no epoch
		apply(c.beat, &redis.Message{Payload: beatOf(2)})
		s.nonce, s.asked = "n", c.asked
		apply(now, &redis.Pong{Payload: "n"})
		switch v := s.h.tick(now.Add(period * 6 / 10)); {
		case c.want == "" && !v.open:
			t.Errorf("%s: closed, %v", c.name, v.why)
		case c.want != "" && (v.open || !v.empty || !strings.Contains(v.why.Error(), c.want)):
			t.Errorf("%s: %+v, wanted %q", c.name, v, c.want)
		}
	}
}

// A heartbeat that waits behind a message proves nothing yet.
func TestQueuedHeartbeatVouchesForNothing(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	channel := "c:" + t.Name()
	reached, goOn := make(chan struct{}), make(chan struct{})
	hook := func(keys, _ []string) {
		if keys[0] == "first" {
			close(reached)
			<-goOn
		}
	}
	c := listenerTo(t, Config{Redis: client, Timeout: 5 * time.Second, Hooks: Hooks{Evict: hook}, Memory: Memory{Size: 10, Channel: channel, Sources: []string{"s"}, Period: time.Hour}})
	c.memory.obey(verdict{open: true})
	c.memory.put("last", 1, nil, c.memory.mark(), time.Hour, 0, nil)
	h := newHearing(c.config.Memory)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = c.listener.subscription(ctx, h) }()
	testenv.Eventually(t, "the subscription", func() bool {
		return client.PubSubNumSub(t.Context(), channel).Val()[channel] == 1
	})
	publish := func(text string) {
		t.Helper()
		if err := client.Publish(t.Context(), channel, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish(beatOf(1))
	publish(`{"v":1,"epoch":"e","seq":2,"at":"2026-01-01T00:00:00.000000Z","keys":["first"],"patterns":[]}`)
	<-reached
	publish(beatOf(3))
	publish(`{"v":1,"epoch":"e","seq":4,"at":"2026-01-01T00:00:00.000000Z","keys":["last"],"patterns":[]}`)
	testenv.Eventually(t, "both to arrive", func() bool { return c.memory.values.store.EstimatedSize() == 0 })
	// it waits in the hook
	if got := fmt.Sprint(h.beats["s"].IsZero(), h.epochs["e"].seq); got != "true 1" {
		t.Errorf("before it is applied: %s", got)
	}
	close(goOn)
	testenv.Eventually(t, "both to be applied", func() bool { return c.memory.evicted.Load() == 2 })
	cancel()
	<-ended
	if got := fmt.Sprint(h.beats["s"].IsZero(), h.epochs["e"].seq); got != "false 4" {
		t.Errorf("after it is applied: %s", got)
	}
}
