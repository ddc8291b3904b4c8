package limit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// The account that the page names can do all that a Limiter does, in both forms.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "limits.md"))
	must(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER (.*)$`).FindSubmatch(page)
	if line == nil {
		t.Fatal("the page names no account")
	}
	server := testenv.OwnRedis(t)
	account := strings.Fields(string(line[1]))
	testenv.SetUser(t, clientAt(t, server.URL()), account[0], account[1:]...)
	client := clientAt(t, "redis://limits:change-me-7@"+server.Addr())
	for form, most := range forms {
		l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
		for range most + 1 {
			take(t, l, form)
		}
		setAhead(t, clientAt(t, server.URL()), "zahraah:limit:"+form, 24*time.Hour)
		if d := take(t, l, form); d.Allowed {
			t.Errorf("%s: %+v", form, d)
		}
	}
	// each becomes the other
	for form, most := range map[string]int{"exact": forms["counted"], "counted": forms["exact"]} {
		take(t, newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour}), form)
	}
	l := newLimiter(t, limit.Config{Redis: client, Max: 5, Window: time.Hour})
	must(t, l.Forget(t.Context(), "exact"))
	if refused, err := clientAt(t, server.URL()).ACLLog(t.Context(), 10).Result(); err != nil || len(refused) > 0 {
		t.Errorf("Redis refused %+v, %v", refused, err)
	}
	if err := l.CheckServer(t.Context()); err == nil || !strings.Contains(err.Error(), "is not known (the account needs +info +scan +pubsub|numsub)") {
		t.Errorf("%v", err)
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
		must(t, err)
		t.Logf("a limit of %s: %d bytes", name, bytes)
		if bytes > c.most {
			t.Errorf("a limit of %s: %d bytes, wanted %d at most", name, bytes, c.most)
		}
	}
}
