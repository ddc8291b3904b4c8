package keyspace_test

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A key and its lease are named by one command, the lease first (guarantee 1).
func TestUnlinkIsOneCommandForKeyAndLease(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	keys := []string{"shop:product:1", "user:{7}:cart", "odd}brace"}
	fill(t, k.Nodes.Client(), append(leases(keys...), keys...)...)

	commands := monitor(t, server.Addr())
	mustUnlink(t, k, targets(keys...))
	got := slices.DeleteFunc(commands(), func(line string) bool {
		return !strings.Contains(strings.ToLower(line), `"unlink"`)
	})
	want := `"unlink" "lock:fill:{shop:product:1}" "shop:product:1" "lock:fill:user:{7}:cart" "user:{7}:cart" "odd}brace"`
	if len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("server saw\n%s\nwant one line ending in\n%s", strings.Join(got, "\n"), want)
	}
	wantLeft(t, k.Nodes.Client(), append(leases(keys...), keys...))
}

// monitor records what a server is asked. The function that it returns gives everything up to its
// own call.
func monitor(t *testing.T, addr string) func() []string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	lines := bufio.NewScanner(conn)
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %v %q", err, lines.Text())
	}
	return func() (seen []string) {
		c := testenv.Client(t, "redis://"+addr)
		if err := c.Echo(t.Context(), "end of monitor").Err(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if strings.Contains(lines.Text(), "end of monitor") {
				return seen
			}
			seen = append(seen, lines.Text())
		}
		t.Fatalf("monitor ended: %v", lines.Err())
		return nil
	}
}

func TestUnlink100000Keys(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	keys := names(100_000, "zahraah:prod:product:%d")
	held := leases(keys...)
	fill(t, r.Client, keys...)
	fill(t, r.Client, held...)
	fill(t, r.Client, "bystander")

	mustUnlink(t, k, targets(keys...))
	if n, err := r.Client.DBSize(t.Context()).Result(); err != nil || n != 1 {
		t.Errorf("%d keys exist (%v), want the bystander alone", n, err)
	}
}

// Names are bytes (guarantee 5): a star is a star, and nothing is trimmed.
func TestUnlinkTakesNamesVerbatim(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	odd := []string{
		"coupon:*", "coupon:?", "coupon:[a-z]", `coupon:\*`, "line\nbreak", "cr\r\nlf", " space ", `quote"quote`, "quote'",
		"brace:{", "brace:}", "brace:{}", "brace:{}:{x}", "{whole}", "user:{1000}:cart", "منتج:٤٢", "null\x00byte", "\xff\xfe", "",
	}
	bystanders := []string{"coupon:a", "coupon:SUMMER", "line", "space", "brace:", "user:{1000}:cart2", "whole"}
	fill(t, r.Client, odd...)
	fill(t, r.Client, leases(odd...)...)
	fill(t, r.Client, bystanders...)

	mustUnlink(t, k, targets(odd...))
	wantLeft(t, r.Client, append(odd, leases(odd...)...))
	wantLeft(t, r.Client, bystanders, bystanders...)
}

func TestUnlinkNothing(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	mustUnlink(t, k, nil)
	mustUnlink(t, k, targets("does:not:exist"))
}

// One key that the user may not touch fails alone; its neighbours in the same command are gone
// (guarantee 4).
func TestUnlinkRefusedKey(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "+@all", "~shop:*", "~lock:fill:{shop:*", "~lock:hold:{shop:*")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())})
	keys := names(2000, "shop:%d")
	keys[3], keys[1500] = "other:3", "other:1500"
	fill(t, admin, keys...)
	fill(t, admin, leases(keys...)...)

	all := targets(keys...)
	all[1500].Hold, all[7].Hold = time.Minute, time.Minute
	done, err := k.Unlinker.Unlink(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	failures := done.Failures
	if len(failures) != 2 || failures[0].Index != 3 || failures[1].Index != 1500 {
		t.Fatalf("failures %v, want 3 and 1500", failures)
	}
	wantRefusal(t, failures[0].Err, "other:3")
	wantRefusal(t, failures[1].Err, "other:1500")
	if !redis.IsPermissionError(failures[0].Err) {
		t.Errorf("%v hides its cause", failures[0].Err)
	}
	wantLeft(t, admin, keys, "other:3", "other:1500")
	wantLeft(t, admin, leases(keys...), leases("other:3", "other:1500")...)
	wantLeft(t, admin, tombstones(keys...), tombstones("shop:7")...)
}

// setUser makes an ACL user.
func setUser(t *testing.T, admin *redis.Client, rules ...string) {
	t.Helper()
	args := []any{"acl", "setuser"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// The permissions that the package comment lists are sufficient.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "-@all",
		"+unlink", "+publish", "+subscribe", "+set", "+pexpire", "+get", "+time", "+scan", "+scard", "+renamenx", "+sscan", "+srem", "+ping", "+select",
		"~shop:*", "~tag:*", "~lock:fill:*", "~lock:hold:*", "~unstale:set:*", "~unstale:beacon:*", "&cache:invalidate")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr() + "/3"), BeaconTTL: time.Hour})
	admin = testenv.Client(t, "redis://"+server.Addr()+"/3")
	fill(t, admin, "shop:1", "shop:2", "shop:3")
	if err := admin.SAdd(t.Context(), "tag:a", "shop:3").Err(); err != nil {
		t.Fatal(err)
	}

	if err := k.Nodes.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := k.Beacons.CheckBeacon(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := k.Beacons.Survived(t.Context(), []string{"an epoch"}); err != nil {
		t.Error(err)
	}
	mustUnlink(t, k, []keyspace.Target{{Key: "shop:1", Hold: time.Minute}})
	if _, err := k.Sweeper.Sweep(t.Context(), []string{"shop:2*"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := k.Sets.TakeSet(t.Context(), "tag:a", 1, unheard); err != nil {
		t.Error(err)
	}
	if _, err := k.Publisher.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, keyspace.News{Keys: []string{"shop:1"}}); err != nil {
		t.Error(err)
	}
	wantLeft(t, admin, []string{"shop:1", "shop:2", "shop:3", "tag:a"})
}
