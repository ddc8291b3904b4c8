package keyspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// sweepPatterns are 20 patterns, some of them with escapes.
func sweepPatterns() []string {
	list := []string{
		"zahraah:prod:home", "zahraah:prod:shipping:city:*", "zahraah:prod:product:1?", "*:odd", "none:*",
		protocol.Escape("literal:*") + ":*", protocol.Escape("literal:[x]?"), `literal:\\*`, "user:{7}:*", "سلة:*",
	}
	for i := range 10 {
		list = append(list, fmt.Sprintf("zahraah:prod:category:%d:list:*", i))
	}
	return list
}

// One sweep removes exactly the names that match in Redis. The leases go too, even those whose key
// does not exist.
func TestSweep(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	keys := append(names(35_000, "zahraah:prod:product:%d"), names(10_000, "zahraah:prod:shipping:city:%d")...)
	for i := range 25 {
		keys = append(keys, names(200, fmt.Sprintf("zahraah:prod:category:%d:list:p%%d", i))...)
	}
	keys = append(keys, "zahraah:prod:home", "a:odd", "{}:odd", "literal:*:1", "literal:a:1", "literal:[x]?", "literal:x?",
		`literal:\`, "user:{7}:cart", "user:{8}:cart", "سلة:١", "zahraah:prod:home\n", "zahraah:prod:home2")
	fill(t, r.Client, keys...)
	patterns := sweepPatterns()
	var matching []string
	for _, p := range patterns {
		found, err := r.Client.Keys(t.Context(), p).Result()
		if err != nil {
			t.Fatal(err)
		}
		matching = append(matching, found...)
	}
	slices.Sort(matching)
	matching = slices.Compact(matching)
	staying := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { _, ok := slices.BinarySearch(matching, key); return ok })
	// A lease of every key, and of keys that do not exist.
	absent := names(50, "zahraah:prod:category:3:list:absent%d")
	fill(t, r.Client, leases(keys...)...)
	fill(t, r.Client, leases(absent...)...)
	fill(t, r.Client, leases("bystander:absent")...)

	got, err := k.Sweeper.Sweep(t.Context(), append(patterns, patterns[0], patterns[3]), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantLeft(t, r.Client, append(matching, leases(matching...)...))
	wantLeft(t, r.Client, leases(absent...))
	staying = append(append(staying, leases(staying...)...), leases("bystander:absent")...)
	wantLeft(t, r.Client, staying, staying...)

	if want := int64(len(matching) + len(leases(matching...)) + len(absent)); got.Unlinked != want {
		t.Errorf("unlinked %d names, want %d", got.Unlinked, want)
	}
	if got.Scanned < int64(len(keys)) || len(got.Patterns) != len(patterns) {
		t.Errorf("scanned %d names for %d patterns", got.Scanned, len(got.Patterns))
	}
	for i, p := range got.Patterns {
		if p.Pattern != patterns[i] || p.Err != nil {
			t.Errorf("pattern %d is %+v", i, p)
		}
	}
	if n := got.Patterns[0].Matched; n != 1 {
		t.Errorf("%s matched %d", patterns[0], n)
	}
	if n := got.Patterns[4].Matched; n != 0 {
		t.Errorf("%s matched %d", patterns[4], n)
	}
}

// A pattern that is not a glob and a key that Redis refuses are told apart from the rest, which is
// swept.
func TestSweepRefusals(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "+@all", "~a:*", "~c:*", "~lock:fill:*")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())})
	fill(t, admin, "a:1", "a:2", "b:1", "b:2", "c:1")

	got, err := k.Sweeper.Sweep(t.Context(), []string{"a:*", "b:*", "c:[1]", "c:*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantLeft(t, admin, []string{"a:1", "a:2", "b:1", "b:2", "c:1"}, "b:1", "b:2")
	var refusal *keyspace.Refusal
	if p := got.Patterns[1]; p.Matched != 2 || !redis.IsPermissionError(p.Err) || !errors.As(p.Err, &refusal) {
		t.Errorf("%+v, want a refusal by Redis", p)
	}
	wantRefusal(t, got.Patterns[2].Err, "c:[1]")
	if got.Patterns[0].Err != nil || got.Patterns[3].Err != nil || got.Unlinked != 3 {
		t.Errorf("%+v", got)
	}
}

func TestSweepNothing(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	fill(t, r.Client, "a")
	for _, patterns := range [][]string{nil, {"["}} {
		if got, err := k.Sweeper.Sweep(t.Context(), patterns, nil); err != nil || got.Scanned != 0 || len(got.Patterns) != len(patterns) {
			t.Errorf("%q: %+v, %v", patterns, got, err)
		}
	}
}

// An interrupted sweep reports what it has done, and the next one does the rest.
func TestSweepInterrupted(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	admin := testenv.Client(t, server.URL())
	fill(t, admin, names(50_000, "a:%d")...)

	for _, c := range []struct {
		what      string
		interrupt func(cancel context.CancelFunc) error
		states    []string
	}{
		{"cancelled", func(cancel context.CancelFunc) error { cancel(); return nil },
			[]string{keyspace.StateCanceled}},
		// The next connection may lead to another server.
		{"connection lost", func(context.CancelFunc) error {
			return admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err()
		}, []string{keyspace.StateNetwork}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		type outcome struct {
			keyspace.SweepResult
			error
		}
		done := make(chan outcome, 1)
		start := admin.DBSize(t.Context()).Val()
		go func() {
			got, err := k.Sweeper.Sweep(ctx, []string{"a:*"}, nil)
			done <- outcome{got, err}
		}()
		testenv.Eventually(t, "the sweep to begin", func() bool { return admin.DBSize(t.Context()).Val() < start })
		if err := c.interrupt(cancel); err != nil {
			t.Fatal(err)
		}
		got := <-done
		cancel()
		wantOutage(t, got.error, c.states...)
		if gone := start - admin.DBSize(t.Context()).Val(); got.Unlinked > gone || got.Patterns[0].Matched < got.Unlinked {
			t.Errorf("%s: %+v, but %d are gone", c.what, got.SweepResult, gone)
		}
	}
	if _, err := k.Sweeper.Sweep(t.Context(), []string{"a:*"}, nil); err != nil {
		t.Fatal(err)
	}
	if n := admin.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A sweep goes page by page and unlinks while it scans. Redis stays available to other clients.
func TestSweepInPages(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	fill(t, k.Nodes.Client(), names(20_000, "a:%d")...)
	if _, err := k.Sweeper.Sweep(t.Context(), []string{"a:*"}, nil); err != nil {
		t.Fatal(err)
	}
	stats := k.Nodes.Client().InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
	for _, command := range []string{"scan", "unlink"} {
		var calls int
		if _, err := fmt.Sscanf(stats["cmdstat_"+command], "calls=%d,", &calls); err != nil || calls < 20 {
			t.Errorf("%s: %q, want 20 calls or more", command, stats["cmdstat_"+command])
		}
	}
}

// A Redis that does not reply for longer than Timeout, as during a fork, does not cost a sweep its
// progress.
func TestSweepSitsOutAStall(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL()), Timeout: 300 * time.Millisecond, BeaconTTL: time.Hour})
	k.Sweeper.WatchEveryPage()
	fill(t, testenv.Client(t, server.URL()), names(20_000, "a:%d")...)
	stalled := false
	watch := func(p keyspace.Progress) {
		if stalled || p.Scanned < 5000 {
			return
		}
		stalled = true
		if err := server.Pause(); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { _ = server.Resume() })
	}
	got, err := k.Sweeper.Sweep(t.Context(), []string{"a:*"}, watch)
	if err != nil || got.Scanned > 30_000 || !stalled {
		t.Errorf("%+v, %v", got, err)
	}
	if n := testenv.Client(t, server.URL()).Keys(t.Context(), "a:*").Val(); len(n) != 0 {
		t.Errorf("%d keys left", len(n))
	}
}
