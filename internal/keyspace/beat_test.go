package keyspace_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

func mustBeat(t *testing.T, k *keyspace.Keyspace, channel, moved string) {
	t.Helper()
	if err := k.Publisher.Beat(t.Context(), channel, moved, "", time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func mustPublish(t *testing.T, k *keyspace.Keyspace, channel string, keys ...string) {
	t.Helper()
	if n, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: keys}); n.Messages != 1 || err != nil {
		t.Fatalf("%d messages, %v", n.Messages, err)
	}
}

func mustSayGoodbye(t *testing.T, k *keyspace.Keyspace, channel string) {
	t.Helper()
	if err := k.Publisher.Goodbye(t.Context(), channel); err != nil {
		t.Fatal(err)
	}
}

// wantMessage checks a message.
func wantMessage(t *testing.T, m protocol.Message, seq uint64, keys int, beat *protocol.Beat) {
	t.Helper()
	got, want := "none", "none"
	if m.Beat != nil {
		b := *m.Beat
		if says := b.Behind >= 60_000; says == (b.First || b.Last) {
			t.Errorf("number %d is behind by %d ms", m.Seq, b.Behind)
		}
		b.Behind = 0
		got = fmt.Sprintf("%+v", b)
	}
	if beat != nil {
		want = fmt.Sprintf("%+v", *beat)
	}
	if m.Seq != seq || len(m.Keys) != keys || got != want {
		t.Errorf("heard number %d with %d keys and heartbeat %s, want %d, %d, %s", m.Seq, len(m.Keys), got, seq, keys, want)
	}
}

// The first and the last message of an epoch are marked, regardless of their content. Heartbeats
// are between the others.
func TestBeat(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	next := func() protocol.Message { return decode(t, hear()) }
	k.Publisher.Introduce("s", 10*time.Second)

	mustSayGoodbye(t, k, channel) // of no epoch: not sent
	mustPublish(t, k, channel, "a")
	mustPublish(t, k, channel, "a", "b")
	mustBeat(t, k, channel, "")
	mustBeat(t, k, channel, "elsewhere")
	mustSayGoodbye(t, k, channel)
	m := next()
	epoch := m.Epoch
	wantMessage(t, m, 1, 1, &protocol.Beat{Source: "s", Lease: 10_000, First: true})
	wantMessage(t, next(), 2, 2, nil)
	wantMessage(t, next(), 3, 0, &protocol.Beat{Source: "s", Lease: 10_000})
	wantMessage(t, next(), 4, 0, &protocol.Beat{Source: "s", Lease: 10_000, Moved: "elsewhere"})
	m = next()
	wantMessage(t, m, 5, 0, &protocol.Beat{Source: "s", Lease: 10_000, Last: true})
	if m.Epoch != epoch {
		t.Errorf("goodbye of epoch %s, want %s", m.Epoch, epoch)
	}

	// A heartbeat is never the first message, which proves nothing.
	k.Publisher.Introduce("s", time.Minute)
	mustBeat(t, k, channel, "")
	m = next()
	wantMessage(t, m, 1, 0, &protocol.Beat{Source: "s", Lease: 60_000, First: true})
	if m.Epoch == epoch {
		t.Error("an epoch goes on after its goodbye")
	}
	wantMessage(t, next(), 2, 0, &protocol.Beat{Source: "s", Lease: 60_000})
}

// A publisher without heartbeats is not awaited, and sends a final message nevertheless. The array
// format has room for neither.
func TestGoodbyeWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	channel := r.Channel("cache:invalidate")
	hear := subscribe(t, r.Client, channel)
	if _, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatArray, keyspace.News{Keys: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	mustSayGoodbye(t, k, channel)
	mustPublish(t, k, channel, "a")
	mustSayGoodbye(t, k, channel)
	if text := hear(); text != `["a"]` {
		t.Errorf("heard %s", text)
	}
	wantMessage(t, decode(t, hear()), 1, 1, nil)
	wantMessage(t, decode(t, hear()), 2, 0, &protocol.Beat{Last: true})
}

// A heartbeat waits for one pipeline of a large announcement, and not for all of it: Redis holds
// the first one until the heartbeat waits behind it.
func TestBeatPassesBy(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { _ = client.Close() }()
	k := open(t, keyspace.Options{Redis: at("redis://" + r.Addr()), Timeout: 5 * time.Second})
	k.Publisher.Introduce("s", time.Second)
	const channel = "cache:invalidate"
	hear := subscribe(t, client, channel)
	keys := names(15_000, fmt.Sprintf("%01000d:%%d", 0)) // a pipeline a thousand
	if err := client.Do(t.Context(), "client", "pause", time.Minute.Milliseconds(), "write").Err(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		if _, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatEvent, keyspace.News{Keys: keys}); err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, "an announcement under way", func() bool { return k.Publisher.IsSending(channel) })
	who := make(chan string, 1)
	group.Go(func() {
		who <- goroutine()
		if err := k.Publisher.Beat(t.Context(), channel, "", "", time.Now()); err != nil {
			t.Error(err)
		}
	})
	beating := <-who
	testenv.Eventually(t, "a heartbeat that waits", func() bool { return waitsForMutex(beating) })
	if err := client.Do(t.Context(), "client", "unpause").Err(); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, decode(t, hear()), 1, protocol.MaxEntries, &protocol.Beat{Source: "s", Lease: 1000, First: true})
	at := 0
	for n := 2; n <= 16; n++ {
		m := decode(t, hear())
		if m.Seq != uint64(n) {
			t.Fatalf("heard %d, want %d", m.Seq, n)
		}
		if m.Beat != nil {
			at = n
		}
	}
	if at == 0 || at == 16 {
		t.Errorf("the heartbeat is message %d of 16", at)
	}
}

// goroutine returns the name of the calling goroutine, as in stacks.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(stack[:bytes.IndexByte(stack, '[')])
}

// waitsForMutex reports whether a goroutine waits for a mutex.
func waitsForMutex(goroutine string) bool {
	stacks := make([]byte, 8<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), goroutine+"[sync.Mutex.Lock")
}
