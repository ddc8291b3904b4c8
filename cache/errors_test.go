package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// wantLeft checks which keys an error of Delete or DeleteTag lists, and which names it goes by.
func wantLeft(t *testing.T, err error, left []string, gone int, is, isNot []error) {
	t.Helper()
	var incomplete *cache.InvalidationError
	if !errors.As(err, &incomplete) {
		t.Fatalf("got %v, wanted an InvalidationError", err)
	}
	if !slices.Equal(incomplete.Keys, left) || incomplete.Gone != gone {
		t.Errorf("%d keys are left and %d gone, wanted %d and %d: %v", len(incomplete.Keys), incomplete.Gone, len(left), gone, err)
	}
	for _, target := range is {
		wantError(t, "the error", err, target)
	}
	for _, target := range isNot {
		if errors.Is(err, target) {
			t.Errorf("the error is %v too: %v", target, err)
		}
	}
}

// numbered returns n keys in ascending order.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%04d", i)
	}
	return keys
}

// Redis stops replying between two pipelines of one Delete: the keys of the first one are gone, and
// the state of the others is unknown.
func TestDeleteSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"heeding", "unheeding"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			options, err := redis.ParseURL(w.url)
			testenv.Must(t, err)
			link := newLink(t, options.Addr)
			client := clientKinds(t, link.Addr())[name]
			sent, silentAt := 0, 0
			hook := func(ctx context.Context, verb string) (context.Context, func(error)) {
				if sent++; sent == silentAt {
					testenv.Must(t, link.Swallow())
				}
				return ctx, nil
			}
			c := w.cache(cache.Config{Redis: client, Timeout: 3 * time.Second, Prefix: name + ":", Hooks: cache.Hooks{Redis: hook}})
			keys := numbered(1200)
			for _, key := range keys {
				testenv.Must(t, w.client.Set(t.Context(), name+":"+key, "v", time.Hour).Err())
			}
			testenv.Must(t, c.Delete(t.Context(), "other"))
			silentAt = sent + 2
			err = c.Delete(t.Context(), keys...)
			testenv.Must(t, link.Heal(t.Context()))
			timeouts := []error{cache.ErrInvalidationTimeout, cache.ErrRedisTimeout}
			wantLeft(t, err, keys[500:], 500, append(timeouts, cache.ErrInvalidationPartial), []error{cache.ErrRedisConnection})
			for i, key := range keys {
				if stands := w.stored(name+":"+key) != ""; stands != (i >= 500) {
					t.Fatalf("%s is there: %v", key, stands)
				}
			}
			var incomplete *cache.InvalidationError
			errors.As(err, &incomplete)
			testenv.Eventually(t, "the others to go", func() bool { return c.Delete(t.Context(), incomplete.Keys...) == nil })
			if n := w.client.Exists(t.Context(), name+":"+keys[1199]).Val(); n != 0 {
				t.Error("a key is left")
			}

			silentAt = sent + 1
			err = c.DeleteTag(t.Context(), "t", "u")
			testenv.Must(t, link.Heal(t.Context()))
			wantLeft(t, err, []string{"t", "u"}, 0, timeouts, []error{cache.ErrInvalidationPartial})
		})
	}
}

// A refusal for the sake of one key leaves that one; a context that has ended, all.
func TestDeleteIsRefused(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	testenv.Must(t, w.client.Do(t.Context(), "acl", "setuser", "u", "on", "nopass", "+@all", "~a*", "~lock:fill:{a*").Err())
	options, err := redis.ParseURL(r.URL())
	testenv.Must(t, err)
	client := redis.NewClient(&redis.Options{Addr: options.Addr, Username: "u", Password: "x", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	c := w.cache(cache.Config{Redis: client})
	err = c.Delete(t.Context(), "a1", "b", "a2")
	wantLeft(t, err, []string{"b"}, 2, []error{cache.ErrInvalidationPartial}, []error{cache.ErrInvalidationTimeout, cache.ErrRedisConnection})
	if !strings.Contains(err.Error(), `1 keys of 3 are not known to be gone, the first is "b": NOPERM`) {
		t.Error(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	wantLeft(t, c.Delete(ctx, "a1"), []string{"a1"}, 0, []error{cache.ErrInvalidationTimeout, context.DeadlineExceeded}, []error{cache.ErrInvalidationPartial, cache.ErrRedisTimeout})
}

// A logbook keeps what is logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) has(text string) bool { return l.count(text) > 0 }

func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// deafMemory opens with a subscription and the first message, and closes for a quarter of a minute
// after a possible gap.
func deafMemory(channel string) cache.Memory {
	return cache.Memory{Size: 1000, Channel: channel, MaxStaleness: time.Minute, Period: time.Minute}
}

// publish sends a message; one without an epoch counts for no gap.
func (w *world) publish(channel string, m protocol.Message) {
	w.Helper()
	testenv.Must(w, w.client.Publish(w.Context(), channel, m.Append(nil, protocol.FormatEvent)).Err())
}

// opened waits until memory is open, by a message of the array format.
func (w *world) opened(c *cache.Cache, channel string) {
	w.Helper()
	testenv.Eventually(w, "memory to open", func() bool {
		testenv.Must(w, w.client.Publish(w.Context(), channel, `["nothing"]`).Err())
		return c.Healthy() == nil
	})
}

// A pattern that cannot be compiled can mean any key: L1 is emptied, and Healthy reports it.
func TestPatternThatCannotBeCompiled(t *testing.T) {
	t.Parallel()
	for pattern, cause := range map[string]error{"k[ab]": protocol.ErrGlobClass, `k\`: protocol.ErrGlobEscape} {
		w, channel, log := newWorld(t), "c:"+t.Name()+pattern, &logbook{}
		c := w.cache(cache.Config{Memory: deafMemory(channel), Logger: slog.New(slog.NewTextHandler(log, nil))})
		w.opened(c, channel)
		wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
		wantFetch(t, "second", c, "k", w.db.read, nil, "old", cache.FromMemory)
		w.commit("new", "k")
		w.publish(channel, protocol.Message{Epoch: "e", Seq: 1, Patterns: []string{"other*", pattern}})
		testenv.Eventually(t, "the message", func() bool { return c.Healthy() != nil })
		wantError(t, "Healthy", c.Healthy(), cache.ErrInvalidationPattern)
		wantError(t, "Healthy", c.Healthy(), cause)
		if n := c.Statistics().PatternErrors; n != 1 {
			t.Errorf("%d messages counted", n)
		}
		testenv.Eventually(t, "the log", func() bool { return log.has(cache.ErrInvalidationPattern.Error()) })
		wantFetch(t, "closed", c, "k", w.db.read, nil, "new", cache.FromLoader)
		w.publish(channel, protocol.Message{Epoch: "e", Seq: 2})
		testenv.Eventually(t, "memory to open", func() bool { return c.Healthy() == nil })
		wantFetch(t, "open", c, "k", w.db.read, nil, "new", cache.FromRedis)
	}
}

// More is evicted during a load than is remembered: its value is not kept. One is counted, several
// in a row show.
func TestMemoryOverflows(t *testing.T) {
	t.Parallel()
	w, channel, log := newWorld(t), "c:"+t.Name(), &logbook{}
	c := w.cache(cache.Config{Lease: time.Hour, Memory: deafMemory(channel), Logger: slog.New(slog.NewTextHandler(log, nil))})
	w.opened(c, channel)
	flood := make([]string, protocol.MaxEntries)
	for i := range flood {
		flood[i] = fmt.Sprint(i)
	}
	// during floods memory while keys are loaded, and returns the first of them and how many values
	// were refused. It begins again with others if memory was closed meanwhile, by an invalidation
	// that waited for a second: then nothing is stored, not even in Redis.
	during := func(loads int) (string, uint64) {
		for round := 0; ; round++ {
			w.opened(c, channel)
			closed, overflows := log.count("memory is closed"), c.Statistics().L1Overflows
			p := w.db.paused()
			var all []<-chan answer
			for i := range loads {
				all = append(all, fetchBeside(t, c, fmt.Sprintf("k%d-%d-%d", loads, i, round), p.load, nil))
			}
			for range loads {
				<-p.read
			}
			for range 66 {
				before := c.Statistics().Invalidations
				w.publish(channel, protocol.Message{Keys: flood})
				testenv.Eventually(t, "the message", func() bool { return c.Statistics().Invalidations >= before+1000 })
			}
			whole := c.Healthy() == nil && log.count("memory is closed") == closed
			close(p.release)
			for _, answers := range all {
				wantAnswer(t, "a caller", answers, "old")
			}
			if whole && log.count("memory is closed") == closed {
				return fmt.Sprintf("k%d-0-%d", loads, round), c.Statistics().L1Overflows - overflows
			}
		}
	}
	var key string
	for _, loads := range []int{1, 20} {
		var n uint64
		if key, n = during(loads); n != uint64(loads) {
			t.Errorf("%d of %d values were refused", n, loads)
		}
		if loads == 1 {
			testenv.Must(t, c.Healthy())
			continue
		}
		wantError(t, "Healthy", c.Healthy(), cache.ErrMemoryOverflow)
	}
	if !log.has(cache.ErrMemoryOverflow.Error()) {
		t.Error("nothing is logged")
	}
	wantFetch(t, "then", c, key, w.db.read, nil, "old", cache.FromRedis)
	wantFetch(t, "then", c, key, w.db.read, nil, "old", cache.FromMemory)
	testenv.Must(t, c.Healthy())
	if !log.has("memory keeps values again") {
		t.Error("its end is not logged")
	}
}
