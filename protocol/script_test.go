package protocol_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A fixture is one key on a Redis of the test's own, and the commands of a reader and of the
// worker.
type fixture struct {
	*testing.T
	client                  redis.UniversalClient
	key, lease, hold, stamp string
}

func newFixture(t *testing.T, client redis.UniversalClient, key string) fixture {
	t.Helper()
	lease, ok := protocol.LeaseKey(key)
	hold, also := protocol.HoldKey(key)
	if !ok || !also {
		t.Fatalf("%q has no lease", key)
	}
	return fixture{t, client, key, lease, hold, protocol.StampKey("tag")}
}

func (f fixture) run(script string, keys []string, args ...any) any {
	f.Helper()
	got, err := f.client.Eval(f.Context(), script, keys, args...).Result()
	if err != nil {
		f.Fatal(err)
	}
	return got
}

// take asks for the lease and returns the answer's two parts.
func (f fixture) take(token, useless string) (kind string, rest any) {
	f.Helper()
	got := f.run(protocol.LeaseScript, []string{f.lease, f.hold, f.key}, token, 60_000, useless).([]any)
	return got[0].(string), got[1]
}

// mustTake is take where the lease must be had.
func (f fixture) mustTake(token, useless string) string {
	f.Helper()
	kind, rest := f.take(token, useless)
	if kind != "lease" {
		f.Fatalf("got %s %v, wanted a lease", kind, rest)
	}
	return rest.(string)
}

func (f fixture) fill(lease, value string) bool {
	f.Helper()
	return f.run(protocol.FillScript, []string{f.lease, f.hold, f.key}, lease, value, 60_000) == int64(1)
}

func (f fixture) release(lease string) bool {
	f.Helper()
	return f.run(protocol.ReleaseScript, []string{f.lease}, lease) == int64(1)
}

// remove releases the lease of a load that has nothing to store after it has read a value.
func (f fixture) remove(lease, value string) bool {
	f.Helper()
	return f.run(protocol.ReleaseScript, []string{f.lease, f.key}, lease, sum(value)) == int64(1)
}

func (f fixture) readStamp(token string, ms int) string {
	f.Helper()
	hold, _ := protocol.HoldKey(f.stamp)
	return f.run(protocol.StampScript, []string{f.stamp, hold}, token, ms).(string)
}

// unlink is the worker: lease and value in one command, lease first.
func (f fixture) unlink() {
	f.Helper()
	if err := f.client.Unlink(f.Context(), f.lease, f.key).Err(); err != nil {
		f.Fatal(err)
	}
}

// stored returns the value, or "" for none.
func (f fixture) stored() string {
	f.Helper()
	value, err := f.client.Get(f.Context(), f.key).Result()
	if err != nil && err != redis.Nil {
		f.Fatal(err)
	}
	return value
}

func (f fixture) want(what string, got, want any) {
	f.Helper()
	if got != want {
		f.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func sum(text string) string {
	s := sha1.Sum([]byte(text))
	return hex.EncodeToString(s[:])
}

func TestLeaseAndFill(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	lease := f.mustTake("a", "")
	if !strings.HasPrefix(lease, "a:") || len(lease) < len("a:1700000000000000") {
		t.Errorf("lease %q has no time in it", lease)
	}
	f.want("asked again by the same reader", f.mustTake("a", ""), lease)
	kind, left := f.take("b", "")
	if ms, ok := left.(int64); kind != "taken" || !ok || ms <= 0 || ms > 60_000 {
		t.Errorf("another reader got %s %v", kind, left)
	}
	f.want("a fill with another text", f.fill("b:1", "old"), false)
	f.want("a fill", f.fill(lease, "new"), true)
	f.want("the value", f.stored(), "new")
	f.want("the lease is given back", f.client.Exists(t.Context(), f.lease).Val(), int64(0))
	if ttl := f.client.PTTL(t.Context(), f.key).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the value lives for %v", ttl)
	}

	kind, value := f.take("b", "")
	f.want("with a value", fmt.Sprint(kind, value), fmt.Sprint("value", "new"))
	kind, _ = f.take("b", sum("another"))
	f.want("with a value other than the useless one", kind, "value")
	lease = f.mustTake("b", sum("new"))
	f.want("released", f.release(lease), true)
	f.want("released again", f.release(lease), false)
	lease = f.mustTake("c", "*")
	f.want("a release by another", f.release("b:1"), false)
	f.want("a fill over any value", f.fill(lease, "newer"), true)
}

// The heart of it: what was loaded before an UNLINK is not stored after it.
func TestUnlinkEndsTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	lease := f.mustTake("a", "")
	f.unlink()
	f.want("the fill", f.fill(lease, "old"), false)
	next := f.mustTake("b", "")
	f.want("the first reader's fill under the second's lease", f.fill(lease, "old"), false)
	f.want("the second reader's", f.fill(next, "new"), true)
	f.want("the first reader's, late", f.fill(lease, "old"), false)
	f.want("the value", f.stored(), "new")
}

func TestHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	lease := f.mustTake("a", "")
	if err := f.client.Set(t.Context(), f.hold, "h", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	f.want("a fill under a lease from before", f.fill(lease, "old"), false)
	kind, left := f.take("b", "")
	if ms, ok := left.(int64); kind != "held" || !ok || ms <= 0 {
		t.Errorf("a held key answers %s %v", kind, left)
	}
	f.unlink()
	kind, _ = f.take("b", "")
	f.want("after an UNLINK, which does not name the tombstone", kind, "held")
	hold, _ := protocol.HoldKey(f.stamp)
	f.client.Set(t.Context(), hold, "h", time.Minute)
	f.want("a held stamp", f.readStamp("a", 1000), "")
}

func TestStamp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	stamp := f.readStamp("a", 60_000)
	f.want("read again", f.readStamp("b", 30_000), stamp)
	if ttl := f.client.PTTL(t.Context(), f.stamp).Val(); ttl < 50*time.Second {
		t.Errorf("a shorter time was taken: %v", ttl)
	}
	f.want("for a longer entry", f.readStamp("b", 600_000), stamp)
	if ttl := f.client.PTTL(t.Context(), f.stamp).Val(); ttl < 500*time.Second {
		t.Errorf("the stamp dies before the entry: %v", ttl)
	}
	f.client.Unlink(t.Context(), f.stamp)
	if again := f.readStamp("a", 60_000); again == stamp {
		t.Error("the same token made the same stamp again")
	}
}

func TestExpire(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	expire := func(old, value string) bool {
		t.Helper()
		return f.run(protocol.ExpireScript, []string{f.key}, sum(old), value, 60_000) == int64(1)
	}
	f.want("without a value", expire("v", "w"), false)
	f.client.Set(t.Context(), f.key, "v", time.Second)
	f.want("another value", expire("x", "w"), false)
	f.want("the value", expire("v", "w"), true)
	f.want("a late copy", expire("v", "w"), false)
	f.want("the value", f.stored(), "w")
	f.unlink()
	f.want("after an UNLINK", expire("w", "v"), false)
	f.want("the value", f.stored(), "")
}

// What a load without a value supersedes goes with its lease: the value that was read, if the lease
// is still there. A late copy removes nothing.
func TestRemove(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	store := func(value string) {
		f.Helper()
		f.want("fill", f.fill(f.mustTake("s", "*"), value), true)
	}
	store("v")
	lease := f.mustTake("a", sum("v"))
	f.want("another lease", f.remove("b:1", "v"), false)
	f.want("the value", f.stored(), "v")
	f.want("its lease", f.remove(lease, "v"), true)
	f.want("the value", f.stored(), "")
	store("v")
	f.want("a late copy", f.remove(lease, "v"), false)
	f.want("the value", f.stored(), "v")
	f.want("another value", f.remove(f.mustTake("c", "*"), "w"), true)
	f.want("the value", f.stored(), "v")
}

// A hash that no value can have is an error that names the argument, and changes nothing: a client
// whose hash is of decoded text or in upper case would otherwise get the value that it cannot use
// for ever.
func TestMalformedHash(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testenv.Redis(t).Client, "k")
	lease := f.mustTake("a", "")
	f.client.Set(t.Context(), f.key, "v", time.Minute)
	wanted := map[string]string{
		protocol.LeaseScript: "ARGV[3]", protocol.ReleaseScript: "ARGV[2]", protocol.ExpireScript: "ARGV[1]",
	}
	refused := func(what, script string, keys []string, args ...any) {
		t.Helper()
		want := "ERR " + wanted[script] + " must be the SHA-1 of the bytes of the value in 40 lower-case hex digits"
		if got, err := f.client.Eval(t.Context(), script, keys, args...).Result(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, %v, wanted the error %s", what, got, err, want)
		}
	}
	for _, hash := range []string{strings.ToUpper(sum("v")), sum("v")[1:], sum("v") + "0", "**", " ", sum("v")[1:] + "\x00", sum("v")[1:] + "g"} {
		refused(hash, protocol.LeaseScript, []string{f.lease, f.hold, f.key}, "b", 60_000, hash)
		refused(hash, protocol.ReleaseScript, []string{f.lease, f.key}, lease, hash)
		refused(hash, protocol.ExpireScript, []string{f.key}, hash, "w", 60_000)
	}
	refused("none", protocol.LeaseScript, []string{f.lease, f.hold, f.key}, "b", 60_000)
	for _, hash := range []string{"", "*"} { // which only lease.lua knows
		refused(hash, protocol.ReleaseScript, []string{f.lease, f.key}, lease, hash)
		refused(hash, protocol.ExpireScript, []string{f.key}, hash, "w", 60_000)
	}
	f.want("the value", f.stored(), "v")
	f.want("the lease is still there", f.remove(lease, "v"), true)
	f.want("the value", f.stored(), "")
}

// A client sends a command again when the reply is late, so the first copy may arrive at any time.
// A copy of each of the five is delivered after the UNLINK, 10 times, and never affects what is
// stored.
func TestLateCopies(t *testing.T) {
	t.Parallel()
	client := testenv.Redis(t).Client
	for i := range 10 {
		f := newFixture(t, client, fmt.Sprint("lease", i))
		lease := f.mustTake("a", "")
		f.unlink()
		f.take("a", "") // the late copy takes another lease
		f.want("fill after a late lease", f.fill(lease, "old"), false)
		f.want("stored", f.stored(), "")

		f = newFixture(t, client, fmt.Sprint("fill", i))
		lease = f.mustTake("a", "")
		f.want("fill", f.fill(lease, "old"), true)
		f.want("a copy of the fill whose answer was lost", f.fill(lease, "old"), true)
		f.unlink()
		f.want("late fill", f.fill(lease, "old"), false)
		f.mustTake("b", "")
		f.want("late fill under another lease", f.fill(lease, "old"), false)
		f.want("stored", f.stored(), "")

		f = newFixture(t, client, fmt.Sprint("release", i))
		lease = f.mustTake("a", "")
		f.release(lease)
		next := f.mustTake("a", "")
		f.want("late release", f.release(lease), false)
		f.want("fill after a late release", f.fill(next, "new"), true)

		stamp := f.readStamp("s", 60_000)
		f.client.Unlink(t.Context(), f.stamp)
		if late := f.readStamp("s", 60_000); late == stamp {
			t.Error("a late copy revived a stamp")
		}
		f.client.Unlink(t.Context(), f.stamp)
	}
}

// Without the time in it, a late copy restores the lease and the old value is stored:
// TestLateCopies would find that.
func TestLateCopyWithoutTime(t *testing.T) {
	t.Parallel()
	const marker = `.. ':' .. now[1] .. string.format('%06d', now[2])`
	timeless := strings.Replace(protocol.LeaseScript, marker, `.. ':'`, 1)
	if timeless == protocol.LeaseScript {
		t.Fatal("the script has changed")
	}
	f := newFixture(t, testenv.Redis(t).Client, "k")
	take := func() string {
		return f.run(timeless, []string{f.lease, f.hold, f.key}, "a", 60_000, "").([]any)[1].(string)
	}
	lease := take()
	f.unlink()
	take()
	f.want("fill", f.fill(lease, "old"), true)
}

// In a Cluster the names of each script are in one slot.
func TestScriptsInCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	for _, key := range []string{"a", "b", "user:{1000}:cart", "c{", "{x}y", "p:{}q"} {
		if _, ok := protocol.LeaseKey(key); !ok {
			continue
		}
		f := newFixture(t, cluster.Client, key)
		lease := f.mustTake("a", "")
		f.want("fill", f.fill(lease, "v"), true)
		lease = f.mustTake("a", "*")
		f.want("release", f.release(lease), true)
		f.unlink()
		f.want("stored", f.stored(), "")
		f.readStamp("a", 1000)
	}
}

func TestHoldKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a", "user:{1000}:cart", "a}b", "{a}", "a{}b", "}{"} {
		lease, ok := protocol.LeaseKey(key)
		hold, also := protocol.HoldKey(key)
		if ok != also || ok && strings.TrimPrefix(lease, protocol.LeasePrefix) != strings.TrimPrefix(hold, protocol.HoldPrefix) {
			t.Errorf("%q: lease %q, hold %q", key, lease, hold)
		}
		if protocol.IsHoldKey(hold) != ok || protocol.IsHoldKey(lease) || protocol.IsHoldKey(key) {
			t.Errorf("%q, %q, %q: one of them is taken for what it is not", key, lease, hold)
		}
		if ok && protocol.Slot(hold) != protocol.Slot(key) {
			t.Errorf("%q: another slot", key)
		}
	}
}
