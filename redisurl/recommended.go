package redisurl

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	recommendedTimeout = 200 * time.Millisecond
	recommendedPool    = 20
	recommendedRetries = 1
)

// Recommended returns a copy of o with settings for package cache, limits and locks. It sets only
// fields that are zero:
//
//   - DialTimeout, ReadTimeout, WriteTimeout and PoolTimeout: 200 ms. 50 to 200 ms suit a cache.
//   - PoolSize: 20 connections to each server, which are kept open.
//   - MaxRetries: 1. In Redis Cluster the default of MaxRedirects bounds retries.
//   - DialerRetries: 1. Errors then have the reason of a failed connection.
//   - MaintNotificationsConfig: off.
//
// It always sets ContextTimeoutEnabled: deadlines of contexts end calls. It always sets
// DisableIdentity: connecting then needs no ACL permission but SELECT. It replaces Dialer by one
// that reconnects with backoff, and calls the Dialer of o if there is one. After n failures in a
// row to connect to a server, no connection is tried for n x 200 ms, at most 5 s. Commands that
// need a connection then fail immediately, with the last reason.
//
// Callers may change fields of the result before they make the client. worker.Config.Redis does not
// need it: workers have their own settings.
func Recommended(o *redis.UniversalOptions) *redis.UniversalOptions {
	r := *o
	for _, timeout := range []*time.Duration{&r.DialTimeout, &r.ReadTimeout, &r.WriteTimeout, &r.PoolTimeout} {
		if *timeout == 0 {
			*timeout = recommendedTimeout
		}
	}
	if r.PoolSize == 0 {
		r.PoolSize = recommendedPool
	}
	if r.MaxRetries == 0 && kindOf(&r) != cluster {
		r.MaxRetries = recommendedRetries
	}
	if r.DialerRetries == 0 {
		r.DialerRetries = 1
	}
	if r.MaintNotificationsConfig == nil {
		r.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	r.ContextTimeoutEnabled, r.DisableIdentity = true, true
	r.Dialer = (&redialer{options: &r, dial: o.Dialer, failed: map[string]failure{}}).connect
	return &r
}
