package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
)

// Each role has a line that Redis accepts and that contains no password. A new account cannot log
// in, and another run keeps the password of an account.
func TestACL(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	do := func(line string) {
		t.Helper()
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	login := func(user, password string) error {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		return client.Do(t.Context(), "auth", user, password).Err()
	}
	for _, args := range [][]string{
		{"worker", "--map", shippedMap}, {"reader", "--map", shippedMap, "--report"}, {"limiter", "--prefix", "shop:limit:"}, {"locker"}, {"exporter"},
		{"worker", "--map", shippedMap, "--redis-wait", "1", "--redis-sharded-pubsub", "--wake-channel", "-", "--cluster"},
	} {
		env := map[string]string{"APP_ENV": "prod"}
		got := call(t, env, append([]string{"acl"}, args...)...)
		user := "unstale_" + args[0]
		if got.code != exitDone || !strings.HasPrefix(got.out, "ACL SETUSER "+user+" on resetkeys resetchannels clearselectors -@all +") || strings.Contains(got.out, ">") {
			t.Fatalf("%q: %+v", args, got)
		}
		do("ACL DELUSER " + user)
		do(got.out)
		if err := login(user, ""); err == nil {
			t.Errorf("%q: a new account can log in", args)
		}
		do("ACL SETUSER " + user + " >secret +config &* ~* (+get ~x)")
		do(got.out)
		if err := login(user, "secret"); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		for _, command := range []string{"config get x", "keys *", "flushall", "shutdown", "monitor", "get x", "publish x y"} {
			words := []any{"acl", "dryrun", user}
			for _, word := range strings.Fields(command) {
				words = append(words, word)
			}
			if answer := admin.Do(t.Context(), words...).Val(); answer == "OK" {
				t.Errorf("%q may %s", args, command)
			}
		}
		var told struct {
			Role, User, Line string
			Rules            []string
		}
		asJSON := call(t, env, append([]string{"acl", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(asJSON.out), &told); err != nil || told.Line+"\n" != got.out || told.User != user || told.Role != args[0] ||
			!strings.HasSuffix(told.Line, strings.Join(told.Rules, " ")) {
			t.Errorf("%q: %+v, %v", args, told, err)
		}
	}
}

func TestACLRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "takes 1 argument"},
		{[]string{"workr"}, exitUsage, `there is no role "workr"; did you mean "worker"?`},
		{[]string{"limiter"}, exitUsage, "--prefix is missing"},
		{[]string{"locker", "--prefix", "a{"}, exitUsage, "must not have braces"},
		{[]string{"locker", "--user", "a b"}, exitUsage, "must be ASCII without spaces and quotes"},
		{[]string{"worker", "--map", "nowhere.yaml"}, exitFail, "nowhere.yaml"},
	} {
		if got := call(t, nil, append([]string{"acl"}, c.args...)...); got.code != c.code || !strings.Contains(got.err, c.says) || got.out != "" {
			t.Errorf("%q: %+v, wanted %q", c.args, got, c.says)
		}
	}
	sets := writeFile(t, "version: 1\nentities:\n  thing: {sets: [\"tag:{id}\"]}\n")
	if got := call(t, nil, "acl", "worker", "--map", sets); got.code != exitDone || !strings.Contains(got.err, "the names of members are unknown") || !strings.Contains(got.out, " ~tag:* ") {
		t.Errorf("%+v", got)
	}
}

// The commands of docs/accounts.md print lines.
func TestACLOfPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/accounts.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^unstale (acl .*)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) != len(doctor.ACLRoles) {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		args := strings.Fields(strings.Replace(c[1], "mapping.yaml", shippedMap, 1))
		if got := call(t, map[string]string{"APP_ENV": "prod"}, args...); got.code != exitDone || got.err != "" {
			t.Errorf("%s: %+v", c[0], got)
		}
	}
}
