package testenv

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SetUser gives an account of a Redis rules, as ACL SETUSER does.
func SetUser(t testing.TB, admin *redis.Client, user string, rules ...string) {
	t.Helper()
	args := []any{"acl", "setuser", user}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

// Denied returns the commands, names and channels that Redis has refused to an account, by ACL LOG.
func Denied(t testing.TB, admin *redis.Client, user string) (refused []string) {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Username == user {
			refused = append(refused, e.Reason+" "+e.Object)
		}
	}
	return refused
}

// EachRule grants an account all rules, and then all but one of them, for each. With all of them
// work succeeds and Redis refuses nothing. Without one, Redis refuses the account just what that
// rule grants, according to ACL LOG, after some rounds of work: no rule is superfluous. Scripts are
// forgotten before each round.
func EachRule(t testing.TB, admin *redis.Client, user string, rules []string, work func(rule string) error) {
	t.Helper()
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	for _, missing := range append([]string{""}, rules...) {
		granted := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return rule == missing })
		do("acl", "deluser", user) // which ends its connections
		SetUser(t, admin, user, append([]string{"on", ">secret", "-@all"}, granted...)...)
		do("acl", "log", "reset")
		do("script", "flush")
		if missing == "" {
			if err, refused := work(missing), Denied(t, admin, user); err != nil || len(refused) > 0 {
				t.Fatalf("with all of %q: %v; Redis refused %q", rules, err, refused)
			}
			continue
		}
		Eventually(t, "a refusal without "+missing, func() bool {
			do("script", "flush")
			_ = work(missing) // which may do without
			return slices.ContainsFunc(Denied(t, admin, user), func(refused string) bool { return isOf(refused, missing) })
		})
	}
}

// isOf reports whether Redis has refused what a rule grants.
func isOf(refused, rule string) bool {
	reason, object, _ := strings.Cut(refused, " ")
	switch rule[0] {
	case '+':
		return reason == "command" && object == rule[1:]
	case '&':
		return reason == "channel"
	}
	return reason == "key"
}
