package limit_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/redisurl"
)

// The rules of `unstale acl` suffice for all that a Limiter does, in both forms, and each of them
// is needed.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := clientAt(t, "redis://"+server.Addr()+"/3")
	testenv.EachRule(t, admin, "limits", doctor.ACLRules(doctor.Limiter, doctor.ACLOptions{Prefix: "zahraah:limit:"}), func(string) (failed error) {
		testenv.Must(t, admin.FlushDB(t.Context()).Err())
		o, err := redisurl.Parse("redis://limits:secret@"+server.Addr()+"/3", false)
		testenv.Must(t, err)
		client := redis.NewUniversalClient(redisurl.Recommended(o))
		defer client.Close()
		try := func(form string, most int) {
			d, err := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour}).Take(t.Context(), form)
			failed = errors.Join(failed, err, d.Unsure)
		}
		for form, most := range forms {
			for range most + 1 {
				try(form, most)
			}
			if failed == nil {
				setAhead(t, admin, "zahraah:limit:"+form, 24*time.Hour)
			}
			try(form, most)
		}
		// each becomes the other
		try("exact", forms["counted"])
		try("counted", forms["exact"])
		return errors.Join(failed, newLimiter(t, limit.Config{Redis: client, Max: 5, Window: time.Hour}).Forget(t.Context(), "exact"))
	})
	testenv.SetUser(t, admin, "limits", "+select")
	l := newLimiter(t, limit.Config{Redis: clientAt(t, "redis://limits:secret@"+server.Addr()), Max: 5, Window: time.Hour})
	if err := l.CheckServer(t.Context()); err == nil || !strings.Contains(err.Error(), "is not known (the account needs +info +scan +pubsub|numsub)") {
		t.Errorf("%v", err)
	}
}

// The rules for Cluster suffice too.
func TestPrivilegesInCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	for _, missing := range []string{"", "+cluster|slots", "+command"} {
		rules := doctor.ACLRules(doctor.Limiter, doctor.ACLOptions{Prefix: "zahraah:limit:", Cluster: true})
		rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == missing })
		var nodes []*redis.Client
		for _, node := range cluster.Nodes {
			nodes = append(nodes, clientAt(t, "redis://"+node.Addr()))
			testenv.SetUser(t, nodes[len(nodes)-1], "limits", append([]string{"reset", "on", ">secret", "-@all"}, rules...)...)
			testenv.Must(t, nodes[len(nodes)-1].ACLLogReset(t.Context()).Err())
		}
		o, err := redisurl.Parse(strings.Replace(cluster.URL(), "://", "://limits:secret@", 1), false)
		testenv.Must(t, err)
		client := redis.NewUniversalClient(redisurl.Recommended(o))
		for _, subject := range []string{"a", "b", "c", "d"} {
			d, err := newLimiter(t, limit.Config{Redis: client, Max: 3, Window: time.Hour}).Take(t.Context(), subject)
			if err != nil || d.Allowed == (missing == "+cluster|slots") {
				t.Errorf("without %q: %+v, %v", missing, d, err)
			}
		}
		var all []string
		for _, node := range nodes {
			all = append(all, testenv.Denied(t, node, "limits")...)
		}
		if (len(all) > 0) != (missing != "") {
			t.Errorf("without %q Redis refused %q", missing, all)
		}
		testenv.Must(t, client.Close())
	}
}

// An instance that evicts or forgets is no place for counters.
func TestCheckServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []string
		want    []string
	}{
		"cache": {[]string{"--maxmemory-policy", "allkeys-lru", "--maxmemory", "50mb"}, []string{"limit: ", "may evict what must stay (maxmemory-policy allkeys-lru)", "set appendonly yes"}},
		"state": {[]string{"--appendonly", "yes", "--dir", t.TempDir()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t, c.options...)
			l := newLimiter(t, limit.Config{Redis: clientAt(t, server.URL()), Max: 5, Window: time.Hour})
			wantFaults(t, l.CheckServer(t.Context()), c.want)
		})
	}
}

func wantFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if (err == nil) != (len(want) == 0) {
		t.Fatalf("%v", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v, wanted %q", err, text)
		}
	}
}

// In Cluster every subject is one key, wherever its braces put it, and every master is looked at.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Nodes[0].Addr()}, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	for form, most := range forms {
		l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
		for _, subject := range []string{form + "a", form + "{b", form + "}{c}", form + "*", form + "\x00\xff"} {
			for range most {
				take(t, l, subject)
			}
			if d := take(t, l, subject); d.Allowed {
				t.Errorf("%q: %+v", subject, d)
			}
		}
		wantFaults(t, l.CheckServer(t.Context()), []string{"set appendonly yes"})
	}
}

// A subject costs what the page says, whatever it does.
func TestMemory(t *testing.T) {
	t.Parallel()
	client := clientAt(t, testenv.Redis(t).URL)
	for name, c := range map[string]struct {
		max  int
		most int64
	}{"5": {5, 184}, "20": {20, 512}, "21": {21, 120}, "a million": {1_000_000, 120}} {
		l := newLimiter(t, limit.Config{Redis: client, Max: c.max, Window: time.Hour, Prefix: "zahraah:limit:" + name + ":"})
		for range 150 {
			take(t, l, "+49 30 1234567")
		}
		bytes, err := client.MemoryUsage(t.Context(), "zahraah:limit:"+name+":+49 30 1234567").Result()
		testenv.Must(t, err)
		t.Logf("a limit of %s: %d bytes", name, bytes)
		if bytes > c.most {
			t.Errorf("a limit of %s: %d bytes, wanted %d at most", name, bytes, c.most)
		}
	}
}
