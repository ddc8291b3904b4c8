package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// A value that was stored without a tag of the caller's policy is not invalidated with the tag. So
// it is not a value for this caller, from Redis or from L1, for one key or several. Tags that the
// loader has set count for all callers.
func TestEveryTagOfThePolicyIsInTheValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	memory := memoryOf("c:" + t.Name())
	memory.Sources, memory.MaxStaleness = nil, time.Minute
	c, other := w.cache(cache.Config{Memory: memory}), w.cache(cache.Config{Policy: cache.Moderate.Tagged("t")})
	open(t, c)
	bare, tagged := cache.Moderate, cache.Moderate.Tagged("t")
	many := func(ctx context.Context, keys []string) (map[string]string, error) {
		value, err := w.db.read(ctx)
		return map[string]string{keys[0]: value}, err
	}
	wantMany := func(what, key string, p *cache.Policy, want string, loads int64) {
		t.Helper()
		before := w.db.reads.Load()
		got, err := cache.FetchMany(t.Context(), c, []string{key}, many, p)
		if n := w.db.reads.Load() - before; err != nil || got[key] != want || n != loads {
			t.Errorf("%s: got %v, %v after %d loads, want %q after %d", what, got, err, n, want, loads)
		}
	}
	for _, key := range []string{"memory", "Redis"} {
		w.db.set("old")
		wantFetch(t, key, c, key, w.db.read, bare, "old", cache.FromLoader)
		wantMany(key, key+" of many", bare, "old", 1)
		if key == "Redis" {
			c.Clear()
		}
		if _, err := cache.Get[string](t.Context(), other, key); !errors.Is(err, cache.ErrMiss) {
			t.Errorf("%s: Get: %v", key, err)
		}
		if has, err := other.Has(t.Context(), key); has || err != nil {
			t.Errorf("%s: Has: %v, %v", key, has, err)
		}
		wantFetch(t, key+", which has no tag", c, key, w.db.read, tagged, "old", cache.FromLoader)
		wantFetch(t, key+", for whoever asks for none", c, key, w.db.read, bare, "old", cache.FromMemory)
		wantFetch(t, key+", which has the tag", c, key, w.db.read, tagged, "old", cache.FromMemory)
		wantFetch(t, key+", by Config.Policy", other, key, w.db.read, nil, "old", cache.FromRedis)
		wantMany(key+", many without the tag", key+" of many", tagged, "old", 1)
		wantMany(key+", many with the tag", key+" of many", tagged, "old", 0)
		w.commit("new")
		testenv.Must(t, c.DeleteTag(t.Context(), "t"))
		wantFetch(t, key+", after the tag", c, key, w.db.read, tagged, "new", cache.FromLoader)
		wantMany(key+", many after the tag", key+" of many", tagged, "new", 1)
	}
	own := func(ctx context.Context) (string, error) {
		cache.FillFrom(ctx).Tag("own")
		return w.db.read(ctx)
	}
	wantFetch(t, "the stamp is not known", c, "own", own, tagged, "new", cache.FromLoader)
	wantFetch(t, "it is known", c, "own", own, tagged, "new", cache.FromLoader)
	c.Clear()
	wantFetch(t, "beside the policy's", c, "own", own, tagged, "new", cache.FromRedis)
	wantFetch(t, "beside the policy's", c, "own", own, tagged, "new", cache.FromMemory)
}

// A load that began for a caller without the tag is none for a caller who came after the tag was
// invalidated.
func TestLoadWithoutTheTagIsNotShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	p := w.db.paused()
	early := fetchBeside(t, c, "k", p.load, cache.Moderate)
	<-p.read
	w.commit("new", "stamp:t")
	before := c.Statistics().Misses
	late := fetchBeside(t, c, "k", w.db.read, cache.Moderate.Tagged("t"))
	testenv.Eventually(t, "it to have read, and to join", func() bool { return c.Statistics().Misses > before })
	close(p.release)
	wantAnswer(t, "early", early, "old")
	wantAnswer(t, "late", late, "new")
}

// A policy that was derived from nil is the policy of the Cache, with its additions, even if the
// Cache's policy has tags.
func TestPolicyMadeOfNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	memory := memoryOf("c:" + t.Name())
	memory.Sources, memory.MaxStaleness = nil, time.Minute
	c := w.cache(cache.Config{Policy: cache.Ephemeral.Tagged("base"), Memory: memory})
	open(t, c)
	var none *cache.Policy
	for name, p := range map[string]*cache.Policy{
		"tagged": none.Tagged("t"), "after and tagged": none.After(&verdict{}).Tagged("t"), "tagged and after": none.Tagged("t").After(&verdict{}),
	} {
		for _, tag := range []string{"base", "t"} {
			w.db.set("old")
			key := name + " " + tag
			wantFetch(t, key, c, key, w.db.read, p, "old", cache.FromLoader)
			wantFetch(t, key, c, key, w.db.read, p, "old", cache.FromMemory)
			if left := w.client.PTTL(t.Context(), key).Val(); left > 2*time.Minute {
				t.Errorf("%s lives for %v", key, left)
			}
			w.db.set("new")
			testenv.Must(t, c.DeleteTag(t.Context(), tag))
			wantFetch(t, key+" deleted", c, key, w.db.read, p, "new", cache.FromLoader)
		}
	}
	if none.TTL() != 0 || none.Tagged("t").TTL() != 0 {
		t.Error("a policy of none has a TTL")
	}
	made := newCache(t, cache.Config{Redis: w.client, Policy: none.Tagged("t")})
	wantFetch(t, "Config.Policy of none", made, "made", w.db.read, nil, "new", cache.FromLoader)
	testenv.Must(t, made.DeleteTag(t.Context(), "t"))
	wantFetch(t, "Config.Policy of none", made, "made", w.db.read, nil, "new", cache.FromLoader)
	kept := newCache(t, cache.Config{Redis: w.client, Plain: true})
	if _, err := cache.Fetch(t.Context(), kept, "plain", w.db.read, none.Tagged("t")); err == nil {
		t.Error("a plain cache takes a tag on no policy")
	}
}

// The policy of a Cache has no caller whose writes it could know.
func TestConfigPolicyHasNoChecker(t *testing.T) {
	t.Parallel()
	_, err := cache.New(cache.Config{Policy: cache.Moderate.After(&verdict{})})
	const want = "make cache: Policy has a Checker, which knows the writes of one caller: give the policy of After to that caller's calls"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// SlidingMax is the end of a sliding value with any jitter: no process returns it after that.
func TestSlidingEnds(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c, policy := store.Cache(cache.Config{}), cache.Sliding(time.Hour, 2*time.Hour)
	fetch := func(value string) (old int) {
		for i := range 100 {
			got, err := cache.Fetch(t.Context(), c, fmt.Sprint(i), func(context.Context) (string, error) { return value, nil }, policy)
			testenv.Must(t, err)
			if got == "old" {
				old++
			}
		}
		return old
	}
	fetch("old")
	for range 4 {
		store.Advance(20 * time.Minute)
		if old := fetch("new"); old != 100 {
			t.Fatalf("%d of 100 are left while they are read", old)
		}
	}
	store.Advance(20 * time.Minute)
	fetch("new")
	store.Advance(20 * time.Minute) // 2 h in all
	if old := fetch("new"); old > 0 {
		t.Errorf("%d of 100 are older than SlidingMax", old)
	}
}
