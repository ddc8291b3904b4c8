package lock_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// An instance that evicts or loses keys is unsuitable for locks. One that does neither is suitable.
func TestCheckServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check := func(addr string) error {
		return w.Locker(lock.Config{Backend: lock.Redis{Client: testenv.Client(t, "redis://"+addr)}}).CheckServer(t.Context())
	}
	err := check(testenv.OwnRedis(t, "--maxmemory-policy", "allkeys-lru").Addr())
	for _, want := range []string{"lock: ", "maxmemory-policy allkeys-lru", "set appendonly yes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q", err, want)
		}
	}
	good := func() string { return testenv.OwnRedis(t, "--appendonly", "yes", "--dir", t.TempDir()).Addr() }
	must(t, check(good()))
	three := lock.Redlock{Clients: []*redis.Client{testenv.Client(t, "redis://"+good()), testenv.Client(t, "redis://"+testenv.OwnRedis(t).Addr()), testenv.Client(t, "redis://"+good())}}
	err = w.Locker(lock.Config{Backend: three}).CheckServer(t.Context())
	if err == nil || !strings.Contains(err.Error(), "lock: Redlock.Clients[1]: ") || strings.Count(err.Error(), "appendonly") != 1 {
		t.Errorf("of three: %v", err)
	}
}
