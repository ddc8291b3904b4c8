package examples

import (
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/redisurl"
)

// newRedis makes the client of a role, redisurl.Cache or redisurl.State, once per process.
func newRedis(role redisurl.Role) (redis.UniversalClient, error) {
	options, err := redisurl.FromEnv(role)
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(redisurl.Recommended(options)), nil
}
