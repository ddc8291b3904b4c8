package keyspace_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// micros returns a server's own time.
func micros(t *testing.T, c *redis.Client) uint64 {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return uint64(now.UnixMicro())
}

// logCommands makes a server note every command.
func logCommands(t *testing.T, c *redis.Client) {
	t.Helper()
	for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "1000"} {
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// logged returns the names of some commands in the order of their execution by a server.
func logged(t *testing.T, c *redis.Client, wanted ...string) (names []string) {
	t.Helper()
	entries, err := c.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b redis.SlowLog) int { return int(a.ID - b.ID) })
	for _, e := range entries {
		if slices.Contains(wanted, e.Args[0]) {
			names = append(names, e.Args[0])
		}
	}
	return names
}

// wantOneTimeFirst checks that a server got one TIME, before the first UNLINK and not as the first
// command of its pipeline.
func wantOneTimeFirst(t *testing.T, c *redis.Client) {
	t.Helper()
	names := logged(t, c, "get", "time", "unlink")
	first := slices.Index(names, "time")
	if first < 1 || slices.Index(names, "unlink") < first || slices.Contains(names[first+1:], "time") {
		t.Errorf("the server was sent %q", names)
	}
}

// The time is requested once, before the first UNLINK, for any number of pipelines.
func TestBirth(t *testing.T) {
	t.Parallel()
	k, _, c := beaconed(t)
	if _, err := k.Beacons.CheckBeacon(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := names(12_000, "shop:%d")
	logCommands(t, c)
	before := micros(t, c)
	if err := c.SlowLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	done, err := k.Unlinker.Unlink(t.Context(), targets(keys...))
	if err != nil {
		t.Fatal(err)
	}
	wantOneTimeFirst(t, c)
	if after := micros(t, c); done.Born < before || done.Born > after {
		t.Errorf("born at %d, wanted %d to %d", done.Born, before, after)
	}
	if none, err := k.Unlinker.Unlink(t.Context(), nil); err != nil || none.Born != 0 {
		t.Errorf("nothing was born at %d, %v", none.Born, err)
	}
}

// Each master is asked for its own time, and the least one counts.
func TestBirthInCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour})
	mustUnlink(t, k, targets("a"))
	before := uint64(0)
	for _, d := range c.Direct {
		logCommands(t, d)
		if now := micros(t, d); before == 0 || now < before {
			before = now
		}
		if err := d.SlowLogReset(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	done, err := k.Unlinker.Unlink(t.Context(), targets(names(300, "shop:%d")...))
	if err != nil || len(done.Failures) > 0 {
		t.Fatal(err, done.Failures)
	}
	for _, d := range c.Direct {
		wantOneTimeFirst(t, d)
		if after := micros(t, d); done.Born < before || done.Born > after {
			t.Errorf("born at %d, wanted %d to %d", done.Born, before, after)
		}
	}
}

// An account without +time unlinks like any other, has no unlink time, and is not refused
// repeatedly.
func TestBirthWithoutTheRight(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, false)
	single := testenv.OwnRedis(t)
	for name, s := range map[string]struct {
		url   string
		nodes []*redis.Client
	}{
		"Single":  {"redis://worker:secret@" + single.Addr(), []*redis.Client{testenv.Client(t, single.URL())}},
		"Cluster": {"redis+cluster://worker:secret@" + cluster.Nodes[0].Addr(), cluster.Direct},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range s.nodes {
				setUser(t, n, "worker", "on", ">secret", "+@all", "-time", "~*", "&*")
			}
			k := open(t, keyspace.Options{Redis: at(s.url), BeaconTTL: time.Hour})
			for i := range 3 {
				done, err := k.Unlinker.Unlink(t.Context(), targets(names(100, "shop:%d")...))
				if err != nil || len(done.Failures) > 0 || done.Born != 0 || done.Position == (keyspace.Position{}) {
					t.Errorf("call %d: %+v, %v", i, done, err)
				}
			}
			for _, n := range s.nodes {
				log, err := n.Do(t.Context(), "acl", "log").Slice()
				if err != nil || len(log) != 1 {
					t.Errorf("%d kinds of refusals, %v", len(log), err)
					continue
				}
				for _, e := range log {
					if count := e.(map[any]any)["count"]; count != int64(1) {
						t.Errorf("refused %v times", count)
					}
				}
			}
		})
	}
}
