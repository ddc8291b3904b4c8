package keyspace_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// subscribe returns a function that returns the next message on channel, from now on. It reads the
// subscription directly: the channel of go-redis silently drops messages when it is full.
func subscribe(t *testing.T, c redis.UniversalClient, channel string) (hear func() string) {
	t.Helper()
	s := c.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		m, err := s.ReceiveTimeout(t.Context(), 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return m.(*redis.Message).Payload
	}
}

func decode(t *testing.T, payload string) protocol.Message {
	t.Helper()
	m, err := protocol.DecodeMessage([]byte(payload))
	if err != nil {
		t.Fatalf("%v: %s", err, payload)
	}
	return m
}

// Messages in both formats are as in docs/protocol.md.
func TestPublishFormats(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	keys := []string{"zahraah:prod:product:1", "quote\"\n", "منتج"}
	patterns := []string{"zahraah:prod:category:7:list:*"}

	before := time.Now().Add(-time.Second)
	for _, f := range []protocol.Format{protocol.FormatEvent, protocol.FormatArray} {
		if n, err := k.Publisher.Publish(t.Context(), channel, f, keyspace.News{Keys: keys, Patterns: patterns}); n.Messages != 1 || err != nil {
			t.Fatalf("%s: %d messages, %v", f, n.Messages, err)
		}
	}
	m := decode(t, hear())
	if !slices.Equal(m.Keys, keys) || !slices.Equal(m.Patterns, patterns) || m.Seq != 1 || len(m.Epoch) < 16 ||
		m.At.Before(before) || m.At.After(time.Now()) {
		t.Errorf("event: %+v", m)
	}
	var list []string
	if err := json.Unmarshal([]byte(hear()), &list); err != nil || !slices.Equal(list, append(keys, patterns...)) {
		t.Errorf("array: %q, %v", list, err)
	}
}

func TestPublishSplits(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	keys, patterns := names(2500, "key:%d"), names(1700, "pattern:%d:*")

	if n, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{}); n.Messages != 0 || err != nil {
		t.Errorf("nothing: %d messages, %v", n.Messages, err)
	}
	if n, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: keys, Patterns: patterns}); n.Messages != 5 || err != nil {
		t.Fatalf("%d messages, %v, want 5", n.Messages, err)
	}
	var gotKeys, gotPatterns []string
	for seq := uint64(1); seq <= 5; seq++ {
		m := decode(t, hear())
		if m.Seq != seq || len(m.Keys)+len(m.Patterns) > protocol.MaxEntries {
			t.Errorf("message %d has number %d, %d keys and %d patterns", seq, m.Seq, len(m.Keys), len(m.Patterns))
		}
		gotKeys, gotPatterns = append(gotKeys, m.Keys...), append(gotPatterns, m.Patterns...)
	}
	if !slices.Equal(gotKeys, keys) || !slices.Equal(gotPatterns, patterns) {
		t.Errorf("heard %d keys and %d patterns, not those that were published", len(gotKeys), len(gotPatterns))
	}
}

// Each message with keys has the unlink time of the batch.
func TestPublishUnlinked(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	news := keyspace.News{Keys: names(1001, "key:%d"), Patterns: names(1000, "pattern:%d:*"), Unlinked: 7}
	if n, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, news); n.Messages != 3 || err != nil {
		t.Fatalf("%d messages, %v, want 3", n.Messages, err)
	}
	for i, want := range []uint64{7, 7, 0} { // the last one has patterns alone
		if m := decode(t, hear()); m.Unlinked != want {
			t.Errorf("message %d with %d keys says %d, want %d", i, len(m.Keys), m.Unlinked, want)
		}
	}
}

// Large entries make several pipelines, which subscribers cannot distinguish from one.
func TestPublishManyBytes(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	keys := names(3000, fmt.Sprintf("%0700d:%%d", 0))
	if n, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatArray, keyspace.News{Keys: keys}); n.Messages != 3 || err != nil {
		t.Fatalf("%d messages, %v, want 3", n.Messages, err)
	}
	var heard []string
	for range 3 {
		heard = append(heard, decode(t, hear()).Keys...)
	}
	if !slices.Equal(heard, keys) {
		t.Errorf("heard %d keys, not those that were published", len(heard))
	}
}

// Concurrent publishers produce one ascending sequence without gaps. Two Keyspaces have two epochs.
func TestPublishInOrder(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	const publishers, messages = 8, 25
	spaces := []*keyspace.Keyspace{open(t, keyspace.Options{Redis: at(r.URL)}), open(t, keyspace.Options{Redis: at(r.URL)})}
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for range messages {
				if _, err := spaces[i%2].Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: []string{"k"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	last := map[string]uint64{}
	for range publishers * messages {
		m := decode(t, hear())
		if m.Seq != last[m.Epoch]+1 {
			t.Fatalf("epoch %s: heard %d after %d", m.Epoch, m.Seq, last[m.Epoch])
		}
		last[m.Epoch] = m.Seq
	}
	if len(last) != 2 {
		t.Errorf("heard %d epochs, want 2", len(last))
	}
}

// Each channel has its own epoch, and its listeners receive all of it.
func TestPublishNumbersEachChannel(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	epochs := map[string]bool{}
	channels := []string{r.Channel("a"), r.Channel("b")}
	hears := []func() string{subscribe(t, r.Client, channels[0]), subscribe(t, r.Client, channels[1])}
	for seq := uint64(1); seq <= 3; seq++ {
		for i, channel := range channels {
			if _, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: []string{"k"}}); err != nil {
				t.Fatal(err)
			}
			m := decode(t, hears[i]())
			epochs[m.Epoch] = true
			if m.Seq != seq || m.Beat != nil {
				t.Errorf("channel %d: heard %+v, want number %d", i, m, seq)
			}
		}
	}
	if len(epochs) != 2 {
		t.Errorf("%d epochs", len(epochs))
	}
}
