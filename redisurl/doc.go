// Package redisurl reads the URL of Redis or Valkey: an application and its workers then use the
// same servers and databases. It supports a single server, Sentinel and Redis Cluster, which the
// URLs of go-redis do not:
//
//	redis://user:password@host:port/db
//	redis+cluster://user:password@host:port,host:port
//	redis+sentinel://user:password@host:port,host:port/master/db
//	redis+sentinel://user:password@host:port,host:port/db?master=name
//
// The schemes rediss, rediss+cluster and rediss+sentinel use TLS: 1.2 or newer, with the
// authorities of the system. Ports default to 6379, those of sentinels to 26379. Query options: db;
// skip_verify=true (TLS without checking the certificate); for Sentinel master, sentinel_username
// and sentinel_password. Any other option is refused.
//
// An application makes its clients once, from the variables that the worker reads:
//
//	options, err := redisurl.FromEnv(redisurl.Cache)
//	if err != nil {
//		return err
//	}
//	client := redis.NewUniversalClient(redisurl.Recommended(options))
package redisurl
