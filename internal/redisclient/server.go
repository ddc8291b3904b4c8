package redisclient

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// Address tells a person which server a client asks.
func Address(client *redis.Client) string {
	if FollowsSentinel(client) {
		return "Sentinel's master"
	}
	return client.Options().Addr
}

// FollowsSentinel reports whether a client asks whichever server Sentinel names, for which go-redis
// has a word in place of an address.
func FollowsSentinel(client *redis.Client) bool { return client.Options().Addr == "FailoverClient" }

// Facts returns the values that an answer to INFO has, by their names.
func Facts(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}
