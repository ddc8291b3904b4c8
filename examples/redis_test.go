package examples

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

// The cache and state are in the databases of the variables.
func TestNewRedis(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://"+testenv.OwnRedis(t).Addr())
	t.Setenv("REDIS_DB_CACHE", "3")
	t.Setenv("REDIS_DB_STATE", "4")
	for role, db := range map[redisurl.Role]int{redisurl.Cache: 3, redisurl.State: 4} {
		client, err := newRedis(role)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		// a busy machine takes more than the recommended timeout
		testenv.Eventually(t, "an answer", func() bool { return client.Ping(t.Context()).Err() == nil })
		if o := client.(*redis.Client).Options(); o.DB != db || !o.ContextTimeoutEnabled {
			t.Errorf("%s: %+v", role, o)
		}
	}
}
