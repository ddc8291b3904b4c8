package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// testResults checks what is found about each kind of content.
func testResults(t *testing.T, b *bench) {
	for _, c := range []struct {
		name, key string
		hold      time.Duration
		text      func(unlinked int64) string // "": nothing is stored
		want      maintenance.SpotResult
	}{
		{"earlier lease", "shop:a", 0, func(at int64) string { return entry(at - 1) }, maintenance.Found},
		{"earlier lease, bytes", "shop:b", 0, func(at int64) string { return strings.Replace(entry(at-1), "{", `{"f":2,`, 1) }, maintenance.Found},
		{"much earlier lease", "shop:c", 0, func(at int64) string { return entry(at - time.Hour.Microseconds()) }, maintenance.Found},
		{"during the UNLINK", "shop:d", 0, entry, maintenance.Unknown},
		{"later lease", "shop:e", 0, func(int64) string { return b.later("shop:e") }, maintenance.Fresh},
		{"lease in the future", "shop:f", 0, func(at int64) string { return entry(at + time.Hour.Microseconds()) }, maintenance.Unknown},
		{"nothing", "shop:g", 0, func(int64) string { return "" }, maintenance.Absent},
		{"bare value", "shop:h", 0, func(int64) string { return `{"price":7,"b":5}` }, maintenance.Unknown},
		{"names of fields by chance", "shop:i", 0, func(int64) string { return `{"e":7,"b":5,"v":1}` }, maintenance.Unknown},
		{"large value", "shop:j", 0, func(int64) string { return strings.Repeat("x", 1<<20) }, maintenance.Unknown},
		{"cut", "shop:k", 0, func(at int64) string { return entry(at - 1)[:30] }, maintenance.Unknown},
		{"hash tag", "shop:{a}:l", 0, func(at int64) string { return entry(at - 1) }, maintenance.Found},
		{"no lease is possible", "shop}m", 0, func(at int64) string { return entry(at - 1) }, maintenance.Found},
		{"earlier tag version", "stamp:shop", 0, func(at int64) string { return fmt.Sprint("random:", at-1) }, maintenance.Found},
		{"later tag version", "stamp:books", 0, func(int64) string { return "random:" + strings.Split(b.later("stamp:books"), ":")[2][:16] }, maintenance.Fresh},
		{"tag version without a time", "stamp:shoes", 0, func(int64) string { return "random" }, maintenance.Unknown},
		{"a later lease in a hold", "shop:n", time.Minute, func(int64) string { return b.later("shop:n") }, maintenance.Found},
		{"a bare value in a hold", "shop:o", time.Minute, func(int64) string { return "value" }, maintenance.Found},
		{"nothing in a hold", "shop:p", time.Minute, func(int64) string { return "" }, maintenance.Absent},
		{"after a hold", "shop:q", time.Millisecond, func(int64) string {
			testenv.Eventually(t, "the hold to end", func() bool { return !b.exists("lock:hold:{shop:q}") })
			return b.later("shop:q")
		}, maintenance.Fresh},
	} {
		kept := len(b.kept)
		at := b.settle(c.key, c.hold)
		text := c.text(at)
		if text != "" {
			b.set(c.key, text)
		}
		b.wantResults(c.name, c.want)
		if found := c.want == maintenance.Found; found != (len(b.kept) > kept) || found == b.exists(c.key) && text != "" {
			t.Errorf("%s: %d stale entries are kept, the entry exists: %v", c.name, len(b.kept)-kept, b.exists(c.key))
		}
	}
	if err := b.redis.LPush(t.Context(), "shop:list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	b.settle("shop:list", 0)
	if err := b.redis.LPush(t.Context(), "shop:list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	b.wantResults("another type", maintenance.Unknown)
}

func TestResults(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) { t.Parallel(); testResults(t, single(t)) })
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		set := testenv.OwnSentinel(t)
		testResults(t, newBench(t, set.URL("", 0), testenv.Client(t, "redis://"+set.Master.Addr())))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testenv.OwnCluster(t, 3, false)
		testResults(t, newBench(t, c.URL(), c.Client))
	})
}

// A stale entry is reported with what helps to find its writer, unlinked with its lease, published
// and counted.
func TestStaleEntry(t *testing.T) {
	t.Parallel()
	b := single(t)
	at := b.settle("shop:7", 0)
	lease, _ := protocol.LeaseKey("shop:7")
	b.set("shop:7", entry(at-1500))
	b.set(lease, "random:1")
	b.Tick(t.Context(), time.Second)
	if len(b.kept) != 1 || b.exists("shop:7") || b.exists(lease) || b.repaired != 1 || strings.Join(b.published, " ") != "shop:7" {
		t.Fatalf("kept %+v, published %q, %d repaired", b.kept, b.published, b.repaired)
	}
	s := b.kept[0]
	if s.Key != "shop:7" || s.Entity != "product" || s.ID != "7" || s.Trace != "trace" || s.Row != 1 || !s.Repaired || s.Held ||
		s.UnlinkedAt.Sub(s.LeasedAt) != 1500*time.Microsecond || s.ExpiresAt.IsZero() || s.Position.Epoch == "" || s.Position.N == 0 {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{"level=ERROR", `msg="stale entry"`, "key=shop:7", "entity=product", "trace=trace", "older=1.5ms", "expires_in=", "repaired=true", "cure="} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, &b.log)
		}
	}
	// a key that is stale again within a minute is reported and stays
	again := b.settle("shop:7", 0)
	b.set("shop:7", entry(again-1))
	b.Tick(t.Context(), time.Second)
	if len(b.kept) != 2 || b.kept[1].Repaired || !b.exists("shop:7") {
		t.Errorf("the second time: %+v", b.kept)
	}
	// and the same entry is reported once
	b.settle("shop:8", 0)
	b.settle("shop:7", 0)
	b.set("shop:7", entry(again-1))
	b.wantResults("three checks of two keys", maintenance.Found, maintenance.Found, maintenance.Found, maintenance.Absent)
	if len(b.kept) != 2 || strings.Count(b.log.String(), "stale entry") != 2 {
		t.Errorf("%d are kept:\n%s", len(b.kept), &b.log)
	}
}

// Results are counted for the minute in which their batch was settled.
func TestCounts(t *testing.T) {
	t.Parallel()
	b := single(t)
	u, err := b.k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	b.offer(u, maintenance.SpotKey{Key: "a"}, maintenance.SpotKey{Key: "b"}, maintenance.SpotKey{Key: "c"}, maintenance.SpotKey{Key: "d"})
	at := int64(u.Readings[0].Micros)
	b.set("a", entry(at-1))
	b.set("b", entry(at-1))
	b.set("c", "bare")
	b.settle("e", 0)
	b.set("e", "bare")
	b.settle("f", 0)
	b.set("f", b.later("f"))
	b.Tick(t.Context(), time.Second) // one key
	b.Tick(t.Context(), time.Second)
	b.Note(t.Context())
	want := store.Checks{Sampled: 2, EntryBatches: 2, StaleBatches: 1, Checked: 6, WithEntry: 3, Stale: 2, Absent: 1, Unknown: 2, Repaired: 2}
	if got := b.counts[100]; got != want {
		t.Errorf("after a look: got %+v, want %+v", got, want)
	}
	if err := b.redis.Del(t.Context(), "f").Err(); err != nil {
		t.Fatal(err)
	}
	for _, in := range []time.Duration{10 * time.Second, time.Minute, time.Minute} {
		b.Tick(t.Context(), in)
	}
	want.EntryBatches, want.WithEntry, want.Absent = 1, 2, 2
	b.Note(t.Context())
	if got := b.counts[100]; got != want || len(b.counts) != 1 {
		t.Errorf("got %+v, want %+v", b.counts, want)
	}
}

// What a burst leaves of a second's checks is for the rest of the burst: each entry that survived
// is found, within the rate.
func TestRestOfABurst(t *testing.T) {
	t.Parallel()
	const rate, names, survivors = 50, 216, 7
	server := testenv.OwnRedis(t)
	b := newBenchOf(t, server.URL(), testenv.Client(t, "redis://"+server.Addr()), rate)
	b.settle("first", 0) // it proves that the account may look
	b.Tick(t.Context(), time.Second)
	targets, keys := make([]keyspace.Target, names), make([]maintenance.SpotKey, names)
	for i := range targets {
		targets[i].Key = fmt.Sprint("k", i)
		keys[i].Key = targets[i].Key
	}
	u, err := b.k.Unlinker.Unlink(t.Context(), targets)
	if err != nil {
		t.Fatal(err)
	}
	b.Refill()
	b.offer(u, keys...)
	for i := range survivors { // none is among the first 13
		b.set(fmt.Sprint("k", names-1-30*i), entry(int64(u.Readings[0].Micros)-1))
	}
	b.looked = nil
	for range names/rate + 1 {
		b.Tick(t.Context(), time.Second)
		b.Refill() // a second later
	}
	if len(b.kept) != survivors {
		t.Errorf("%d of %d stale entries are found; looks: %v", len(b.kept), survivors, b.looked)
	}
	for _, n := range b.looked {
		if n > rate+rate/4+1 { // the first one has the share of the batch too
			t.Errorf("a look has %d keys: %v", n, b.looked)
		}
	}
	for range 300 { // while there are many batches, no key waits
		b.offer(u, keys[0])
	}
	b.Offer(maintenance.SpotBatch{Unlinked: u}, func(n int) []maintenance.SpotKey {
		if n > 1 {
			t.Errorf("%d keys were asked for", n)
		}
		return nil
	})
}

// Only the entry that was found is unlinked: one that a reader has stored since then stays.
func TestRepairLeavesANewerEntry(t *testing.T) {
	t.Parallel()
	b := single(t)
	at := b.settle("a", 0)
	b.set("a", entry(at+1))
	if done, err := b.k.Entries.Repair(t.Context(), "a", entry(at-1), false); done || err != nil || !b.exists("a") {
		t.Errorf("%v, %v", done, err)
	}
	if done, err := b.k.Entries.Repair(t.Context(), "a", entry(at+1), true); done || err != nil || !b.exists("a") {
		t.Errorf("after the hold: %v, %v", done, err)
	}
	if done, err := b.k.Entries.Repair(t.Context(), "a", entry(at+1), false); !done || err != nil || b.exists("a") {
		t.Errorf("the same entry: %v, %v", done, err)
	}
}

// Whatever makes times incomparable, or may have brought back an older entry, makes a check
// unknown.
func TestUnknown(t *testing.T) {
	t.Parallel()
	// stale settles a key and stores an entry with an earlier lease time.
	stale := func(b *bench, key string) { b.set(key, entry(b.settle(key, 0)-1)) }

	t.Run("healing", func(t *testing.T) {
		t.Parallel()
		b := single(t)
		stale(b, "a")
		b.state.Loop.Withhold(maintenance.ErrHealing)
		b.wantResults("while healing", maintenance.Unknown)
		if !b.exists("a") {
			t.Error("it was repaired")
		}
	})
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		server := testenv.OwnRedis(t)
		b := newBench(t, server.URL(), testenv.Client(t, "redis://"+server.Addr()))
		b.settle("a", 0)
		b.state.Down(context.DeadlineExceeded)
		b.wantResults("without looks")
		b.state.Up(false)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		b.wantResults("without Redis", maintenance.Unknown)
	})
	t.Run("FLUSHALL", func(t *testing.T) {
		t.Parallel()
		b := single(t)
		at := b.settle("a", 0)
		if err := b.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		b.set("a", entry(at-1))
		b.wantResults("after FLUSHALL", maintenance.Unknown)
	})
	t.Run("old snapshot", func(t *testing.T) {
		t.Parallel()
		server := testenv.OwnRedis(t)
		b := newBench(t, server.URL(), testenv.Client(t, "redis://"+server.Addr()))
		b.settle("b", 0)
		b.set("a", entry(b.now("a")))
		if err := b.redis.Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		b.settle("a", 0)
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the server", func() bool { return b.k.Nodes.Ping(t.Context()) == nil })
		if !b.exists("a") {
			t.Fatal("the entry is not in the snapshot")
		}
		b.wantResults("the UNLINK is lost", maintenance.Absent, maintenance.Unknown)
	})
	t.Run("failover", func(t *testing.T) {
		t.Parallel()
		set := testenv.OwnSentinel(t)
		b := newBench(t, set.URL("", 0), testenv.Client(t, "redis://"+set.Master.Addr()))
		b.set("a", entry(b.now("a")))
		if n, err := b.redis.(*redis.Client).Wait(t.Context(), 1, 10*time.Second).Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		replica := testenv.Client(t, "redis://"+set.Replica.Addr())
		if err := replica.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil { // it lags from now on
			t.Fatal(err)
		}
		b.settle("a", 0)
		if err := set.Master.Kill(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the new master", func() bool { return b.k.Nodes.Ping(t.Context()) == nil })
		b.wantResults("a lagging replica took over", maintenance.Unknown)
	})
	t.Run("slot", func(t *testing.T) {
		t.Parallel()
		c := testenv.OwnCluster(t, 3, false)
		b := newBench(t, c.URL(), c.Client)
		slot := int(protocol.Slot("a"))
		from := slot * 3 / 16384
		to := (from + 1) % 3
		stale(b, "a")
		stale(b, "b:{a}")
		c.Migrate(t, slot, from, to, true)
		testenv.Eventually(t, "the client to follow", func() bool { return b.k.Nodes.Client().Get(t.Context(), "a").Err() == nil })
		b.wantResults("the slot has moved", maintenance.Unknown, maintenance.Unknown)
		b.Tick(t.Context(), 0)
		stale(b, "a")
		c.Migrate(t, slot, to, from, true)
		c.Migrate(t, slot, from, to, true)
		b.wantResults("the slot has moved forth and back", maintenance.Unknown)
		stale(b, "a")
		b.wantResults("it rests", maintenance.Found)
	})
	t.Run("clock", func(t *testing.T) {
		t.Parallel()
		library, err := clock.Library(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		file, err := clock.NewFile(filepath.Join(t.TempDir(), "offset"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Env: []string{library, file.Env()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		b := newBench(t, server.URL(), testenv.Client(t, "redis://"+server.Addr()))
		set := func(jump time.Duration) {
			file.Set(jump)
			// Valkey 9 shows it some time later.
			testenv.Eventually(t, "TIME follows", func() bool {
				now, err := b.redis.Time(t.Context()).Result()
				return err == nil && time.Until(now.Add(-jump)).Abs() < 30*time.Second
			})
		}
		for name, jump := range map[string]time.Duration{"back": -time.Minute, "forward": time.Minute} {
			b.settle("a", 0)
			set(jump)
			b.set("a", entry(b.now("a")))
			b.wantResults("set "+name, maintenance.Unknown)
			b.settle("a", 0)
			b.set("a", b.later("a"))
			b.wantResults("later leases after it was set "+name, maintenance.Fresh)
			set(0)
			b.Tick(t.Context(), 0)
			b.settle("a", 0)
			b.wantResults("nothing", maintenance.Absent)
		}
		// forth and back, while some other batch was settled
		b.settle("a", 0)
		set(-time.Minute)
		b.set("a", entry(b.now("a")))
		b.settle("b", 0)
		set(0)
		b.wantResults("forth and back", maintenance.Unknown, maintenance.Unknown)
	})
}

// An account from before there were spot checks is refused once per minute, for one key, and the
// log reports it once. An account that may look and not repair reports what it finds.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, "redis://"+server.Addr())
	old := []string{"on", ">secret", "-@all", "+ping", "+get", "+set", "+unlink", "+time", "~*"}
	testenv.SetUser(t, admin, "worker", old...)
	b := newBench(t, "redis://worker:secret@"+server.Addr()+"/0", admin)
	for i := range 20 {
		b.settle(fmt.Sprint("key:", i), 0)
	}
	for range 5 {
		b.Tick(t.Context(), time.Second)
	}
	if denied := testenv.Denied(t, admin, "worker"); len(denied) != 1 || !b.looks || strings.Count(b.log.String(), "spot checks are off") != 1 || !strings.Contains(b.log.String(), "+getrange") {
		t.Errorf("refused: %q, off: %v, the log:\n%s", denied, b.looks, &b.log)
	}
	testenv.SetUser(t, admin, "worker", append(old, "+getrange")...)
	b.Retry()
	b.Tick(t.Context(), 0)
	at := b.settle("stale", 0)
	b.set("stale", entry(at-1))
	b.Tick(t.Context(), time.Second)
	if b.looks || !b.repairs || len(b.kept) != 1 || b.kept[0].Repaired || !b.exists("stale") || !strings.Contains(b.log.String(), "stale entries are not repaired") {
		t.Errorf("looks off: %v, repairs off: %v, kept: %+v", b.looks, b.repairs, b.kept)
	}
	// a later look repairs it, and counts and reports nothing again
	b.results = nil
	testenv.SetUser(t, admin, "worker", append(old, "+getrange", "+eval", "+evalsha", "+publish", "&*")...)
	b.Retry()
	b.Tick(t.Context(), 10*time.Second)
	if b.exists("stale") || b.repaired != 1 || len(b.kept) != 1 || slices.Contains(b.results, maintenance.Found) {
		t.Errorf("repaired: %d, kept: %+v, results: %v", b.repaired, b.kept, b.results)
	}
	b.Tick(t.Context(), time.Minute)
	b.Note(t.Context())
	if c := b.counts[100]; c.Stale != 1 || c.Repaired != 1 {
		t.Errorf("%+v", c)
	}
}

// Run ends with its context, and Offer takes what the rate allows now and in the next ten seconds.
func TestRateAndStop(t *testing.T) {
	t.Parallel()
	b := single(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	u, err := b.k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for range 100_000 {
		b.Offer(maintenance.SpotBatch{Unlinked: u}, func(n int) []maintenance.SpotKey {
			taken += n
			return make([]maintenance.SpotKey, n)
		})
	}
	if passed := time.Since(u.Ended).Seconds() + 1; taken < 1000 || float64(taken) > 1000*passed+11_000 {
		t.Errorf("%d keys in %.1f s", taken, passed)
	}
	cancel()
	<-ended
}
