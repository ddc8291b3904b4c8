// Package redisclient tells what a client of go-redis was made to do, and whether its server is fit
// for what must stay.
package redisclient

import "github.com/redis/go-redis/v9"

// EndsCalls reports whether a client ends its calls with their contexts, for which it sets
// deadlines on its connections: with a timeout below 0 it sets none at all. known is false for
// clients of other kinds, of which nobody can tell.
func EndsCalls(client redis.UniversalClient) (ends, known bool) {
	switch client := client.(type) {
	case interface{ Options() *redis.Options }:
		o := client.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0, true
	case interface{ Options() *redis.ClusterOptions }:
		o := client.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0, true
	}
	return false, false
}

// PoolSize returns how many commands a client of one server sends at a time, and 0 for clients of
// other kinds.
func PoolSize(client redis.UniversalClient) int {
	single, ok := client.(interface{ Options() *redis.Options })
	if !ok {
		return 0
	}
	o := single.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}
