package cache_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A reader of another database than the worker's, which only entries reveal.
func TestReaderOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	w := worldAt(t, testenv.OwnRedis(t).URL())
	for db := range 2 {
		client := redis.NewClient(&redis.Options{Addr: w.client.Options().Addr, DB: db, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		memory := deafMemory("c:" + t.Name())
		memory.Period = 200 * time.Millisecond
		logged := &lines{}
		c := w.cache(cache.Config{Redis: client, Memory: memory, Logger: logged.logger()})
		open(t, c)
		now := must1(t, client.Time(t.Context()).Result)
		old := fmt.Sprintf(`{"e":%d,"b":%d,"v":"old"}`, now.Add(time.Hour).UnixMilli(), now.Add(-time.Minute).UnixMicro())
		testenv.Must(t, client.Set(t.Context(), "k", old, time.Hour).Err())
		w.db.set("old")
		seq := uint64(0)
		round := func() {
			before := c.Statistics().Invalidations
			unlinked := must1(t, w.client.Time(t.Context()).Result)
			w.unlink("k")
			testenv.Eventually(t, "the message", func() bool { // a busy machine may lose a subscription with the first one
				seq++
				w.publish(memory.Channel, protocol.Message{Epoch: "e", Seq: seq, At: time.Now(), Keys: []string{"k"}, Unlinked: uint64(unlinked.UnixMicro())})
				return testenv.Comes(5*time.Second, nil, func() bool { return c.Statistics().Invalidations > before })
			})
			wantFetched(t, "k", c, "k", w.db.read, "old")
		}
		if db == 0 {
			for range 5 {
				round()
			}
			if n := c.Statistics().OldEntries; n != 0 {
				t.Errorf("in the worker's database: %d old entries", n)
			}
			testenv.Must(t, c.Healthy())
			continue
		}
		round()
		if n := c.Statistics().OldEntries; n != 1 {
			t.Errorf("%d old entries, wanted one", n)
		}
		if err := c.Healthy(); errors.Is(err, cache.ErrUnlinkedElsewhere) {
			t.Errorf("after one old entry: %v", err)
		}
		testenv.Eventually(t, "the report", func() bool {
			round()
			return errors.Is(c.Healthy(), cache.ErrUnlinkedElsewhere)
		})
		if n := len(logged.with("workers unlink keys elsewhere")); n != 1 {
			t.Errorf("logged %d times", n)
		}
	}
}

// A prefix that no key of the workers has is not an error, but is logged.
func TestPrefixOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	flood := func(prefix string) []string {
		keys := make([]string, protocol.MaxEntries)
		for i := range keys {
			keys[i] = fmt.Sprint(prefix, "product:", i)
		}
		return keys
	}
	for _, e := range []struct {
		prefix      string
		messages    []protocol.Message
		heard, own  uint64
		want        int
		invalidated uint64
	}{
		{"shpo:", []protocol.Message{{Keys: flood("shop:")}, {Keys: flood("shop:")}, {Keys: flood("shop:")}}, 3000, 0, 1, 3000},
		{"shpo:", []protocol.Message{{Keys: flood("shop:")}, {Keys: flood("stamp:")}, {Keys: flood("stamp:")}}, 1000, 0, 0, 3000},
		{"shpo:", []protocol.Message{{Patterns: []string{"sh*"}}, {Keys: flood("shop:")}, {Keys: flood("shop:")}}, 2001, 1, 0, 2001},
		{"shop:", []protocol.Message{{Keys: flood("shop:")}, {Keys: flood("shop:")}}, 2000, 2000, 0, 2000},
		{"", []protocol.Message{{Keys: flood("shop:")}, {Keys: flood("shop:")}}, 2000, 2000, 0, 2000},
	} {
		logged := &lines{}
		memory := deafMemory("c:" + t.Name())
		memory.Period = 200 * time.Millisecond
		c := w.cache(cache.Config{Prefix: e.prefix, Memory: memory, Logger: logged.logger()})
		open(t, c)
		for _, m := range e.messages {
			w.publish(memory.Channel, m)
		}
		testenv.Eventually(t, "the names", func() bool {
			s := c.Statistics()
			return s.NamesHeard == e.heard && s.NamesOwn == e.own && s.Invalidations == e.invalidated
		})
		testenv.Must(t, c.Healthy())
		testenv.Must(t, c.Close()) // no more messages arrive
		found := logged.with("no key of the workers has the prefix")
		if len(found) != e.want || e.want > 0 && !strings.Contains(found[0], "example=shop:product:") {
			t.Errorf("%q: %d lines, wanted %d: %v", e.prefix, len(found), e.want, found)
		}
	}
}
