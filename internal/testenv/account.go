package testenv

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SetUser creates an account of a Redis. It leaves out +client|setinfo if the server does not know
// it: servers before Redis 7.2 do not.
func SetUser(t testing.TB, admin *redis.Client, user string, rules ...string) {
	t.Helper()
	const named = "client|setinfo"
	info, err := admin.Do(t.Context(), "command", "info", named).Slice()
	if err != nil {
		t.Fatal(err)
	}
	args := []any{"acl", "setuser", user}
	for _, rule := range rules {
		if rule != "+"+named || slices.ContainsFunc(info, func(one any) bool { return one != nil }) {
			args = append(args, rule)
		}
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}
