package cache_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

var (
	oldKey = protocol.MessageKey("the key before the rotation")
	newKey = protocol.MessageKey("the key after the rotation")
)

// signedMemory accepts messages of keys alone.
func signedMemory(channel string, keys ...protocol.MessageKey) cache.Memory {
	m := memoryOf(channel)
	m.MessageKeys = keys
	return m
}

// send publishes texts as they are.
func (w *world) send(channel string, texts ...string) {
	w.Helper()
	for _, text := range texts {
		testenv.Must(w, w.client.Publish(w.Context(), channel, text).Err())
	}
}

// Messages of other publishers evict what they name, and do nothing else.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	const period = 15 * time.Second // a busy machine loses no subscription
	memory := signedMemory(channel, newKey)
	memory.Period, memory.MaxStaleness = period, 4*period
	var log logbook
	c := w.cache(cache.Config{Prefix: "p:", Memory: memory, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.beat(channel, "e", newKey)
	open(t, c)
	for _, key := range []string{"k", "old", "swept", "kept"} {
		wantFetch(t, "loaded", c, key, w.db.read, nil, "old", cache.FromLoader)
		wantFetch(t, "kept", c, key, w.db.read, nil, "old", cache.FromMemory)
	}
	plain := func(m protocol.Message) string { return string(m.Append(nil, protocol.FormatEvent)) }
	sign := func(m protocol.Message, sent time.Time, key protocol.MessageKey) string {
		m.Sent = uint64(sent.UnixMicro())
		return string(m.AppendSigned(nil, channel, key))
	}
	moved := protocol.Message{Epoch: "f", Seq: 7, Beat: &protocol.Beat{Source: "s", Moved: "nowhere"}}
	gap := protocol.Message{Epoch: "e", Seq: 1 << 40, Beat: &protocol.Beat{Source: "s"}}
	good := sign(protocol.Message{Epoch: "f", Seq: 1}, time.Now(), newKey)
	forged := []string{
		"garbage", "", "{", `{"v":2}`, `["nothing"]`, plain(protocol.Message{Patterns: []string{"["}}),
		plain(moved), plain(gap), sign(gap, time.Now(), oldKey), sign(gap, time.Time{}, newKey), good[:len(good)-1], strings.Replace(good, `"f"`, `"g"`, 1),
		sign(gap, time.Now().Add(-4*period), newKey), sign(gap, time.Now().Add(4*period), newKey),
		sign(protocol.Message{Epoch: "e", Seq: 1, Keys: []string{"p:old"}}, time.Now().Add(-4*period), newKey),
		plain(protocol.Message{Epoch: "e", Seq: 1 << 40, Keys: []string{"p:k"}, Patterns: []string{"p:sw*"}}),
	}
	w.send(channel, forged...)
	testenv.Eventually(t, "all to be rejected", func() bool { return c.Statistics().Rejected == uint64(len(forged)) })
	for _, key := range []string{"k", "old", "swept"} {
		wantFetch(t, "evicted", c, key, w.db.read, nil, "old", cache.FromRedis)
	}
	wantFetch(t, "not named", c, "kept", w.db.read, nil, "old", cache.FromMemory)
	if err := c.Healthy(); err != nil || log.has("memory is closed") || !log.has("message rejected") || log.has(string(newKey)) {
		t.Errorf("%v; the log:\n%s", err, &log.text)
	}
}

// Neither forged nor repeated heartbeats keep L1 open once the worker stops sending.
func TestForgedHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	sub := w.client.Subscribe(t.Context(), channel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.cache(cache.Config{Memory: signedMemory(channel, newKey)})
	b := w.beat(channel, "e", newKey)
	open(t, c)
	first, err := sub.ReceiveMessage(t.Context())
	testenv.Must(t, err)
	second, err := sub.ReceiveMessage(t.Context())
	testenv.Must(t, err)
	b.stop()
	seq := uint64(1000)
	attack := func() {
		seq++
		forged := protocol.Message{Epoch: "e", Seq: seq, Beat: &protocol.Beat{Source: "s"}}
		w.send(channel, string(forged.Append(nil, protocol.FormatEvent)), first.Payload, second.Payload)
	}
	testenv.Eventually(t, "memory to close", func() bool { attack(); return c.Healthy() != nil })
	before := c.Statistics().Rejected
	testenv.Eventually(t, "repeated heartbeats to be rejected", func() bool {
		attack()
		if c.Healthy() == nil {
			t.Fatal("memory opens without a worker")
		}
		return c.Statistics().Rejected > before+30
	})
}

// During a rotation readers accept both keys.
func TestMessageKeyRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	both := w.cache(cache.Config{Memory: signedMemory(channel, oldKey, newKey)})
	after := w.cache(cache.Config{Memory: signedMemory(channel, newKey)})
	before := w.beat(channel, "old", oldKey)
	open(t, both)
	testenv.Eventually(t, "the old key to be rejected", func() bool { return after.Statistics().Rejected > 0 })
	if after.Healthy() == nil {
		t.Error("open by a key that is not accepted")
	}
	w.beat(channel, "new", newKey)
	open(t, after)
	before.publish(protocol.Message{Beat: &protocol.Beat{Source: "s", Last: true}})
	open(t, both)
	if n := both.Statistics().Rejected; n != 0 {
		t.Errorf("%d messages rejected", n)
	}
}

func TestMessageKeysRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, m := range map[string]cache.Memory{
		"Memory.MessageKeys: a message key has 5 bytes":   signedMemory("c", protocol.MessageKey("short")),
		"Memory.MessageKeys has 3 keys, wanted at most 2": signedMemory("c", oldKey, newKey, oldKey),
		"Memory.MessageKeys: a message key has 3 bytes":   {MessageKeys: []protocol.MessageKey{protocol.MessageKey("one")}},
	} {
		if _, err := cache.New(cache.Config{Redis: w.client, Memory: m}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
