package keyspace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// Each message of the event format is signed and has the time of Redis.
func TestSignedMessages(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { _ = client.Close() }()
	key := protocol.MessageKey("0123456789abcdef")
	const channel = "cache:invalidate"
	hear := subscribe(t, client, channel)
	testenv.SetUser(t, client, "untimed", "on", ">x", "~*", "&*", "+@all", "-time")
	for _, url := range []string{"redis://" + r.Addr(), "redis://untimed:x@" + r.Addr()} {
		k := open(t, keyspace.Options{Redis: at(url), MessageKey: key})
		k.Publisher.Introduce("s", time.Second)
		begun := time.Now()
		mustBeat(t, k, channel, "")
		mustPublish(t, k, channel, "a")
		mustSayGoodbye(t, k, channel)
		for seq := uint64(1); seq <= 4; seq++ {
			text := hear()
			m := decode(t, text)
			if err := protocol.VerifyMessage([]byte(text), channel, key); err != nil || m.Seq != seq {
				t.Errorf("%v: %s", err, text)
			}
			if sent := time.UnixMicro(int64(m.Sent)); sent.Before(begun.Add(-time.Millisecond)) || sent.After(time.Now().Add(time.Millisecond)) {
				t.Errorf("sent at %v, begun at %v", sent, begun)
			}
		}
		if _, err := k.Publisher.Publish(t.Context(), channel, protocol.FormatArray, keyspace.News{Keys: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		if text := hear(); text != `["a"]` {
			t.Errorf("heard %s", text)
		}
	}
	_, err := keyspace.Open(keyspace.Options{Redis: at("redis://" + r.Addr()), MessageKey: protocol.MessageKey("short")})
	if err == nil || !strings.Contains(err.Error(), "option MessageKey: a message key has 5 bytes") {
		t.Error(err)
	}
}
