package redisurl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/redisurl"
)

// Each role gets its server and database, or an error that names the variable and no password.
func TestSettings(t *testing.T) {
	t.Parallel()
	const unset = redisurl.UnsetDB
	const noState = "no database for state; set REDIS_URL_STATE to a separate server, or REDIS_DB_STATE to another database than the cache's"
	same := func(n string) string {
		return "REDIS_DB_STATE and the cache's database, of REDIS_DB_CACHE or else of REDIS_URL, are both " + n + "; keys that expire and keys that must stay need different databases"
	}
	const sameServer = "REDIS_URL_STATE names the cache's server: its database and the cache's database, of REDIS_DB_CACHE or else of REDIS_URL, are both 1; keys that expire and keys that must stay need different databases"
	for _, c := range []struct {
		s            redisurl.Settings
		cache, state string
	}{
		{redisurl.Settings{URL: "redis://h", CacheDB: unset, StateDB: unset}, "redis://h:6379/0", noState},
		{redisurl.Settings{URL: "redis://h/3", CacheDB: unset, StateDB: 4}, "redis://h:6379/3", "redis://h:6379/4"},
		{redisurl.Settings{URL: "redis://h/3", CacheDB: 3, StateDB: 4}, "redis://h:6379/3", "redis://h:6379/4"},
		{redisurl.Settings{URL: "redis://h", TLS: true, CacheDB: 1, StateDB: 0}, "rediss://h:6379/1", "rediss://h:6379/0"},
		{redisurl.Settings{URL: "redis+sentinel://h/shop", CacheDB: 1, StateDB: 2}, "redis+sentinel://h:26379/shop/1", "redis+sentinel://h:26379/shop/2"},
		{redisurl.Settings{URL: "redis://h", CacheDB: unset, StateDB: 0}, same("0"), same("0")},
		{redisurl.Settings{URL: "redis://h/2", CacheDB: 2, StateDB: 2}, same("2"), same("2")},
		{redisurl.Settings{URL: "redis://:secret@h/0", CacheDB: 1, StateDB: unset},
			"REDIS_DB_CACHE is 1 and REDIS_URL names another database; remove the number from REDIS_URL, or make both the same",
			"REDIS_DB_CACHE is 1 and REDIS_URL names another database; remove the number from REDIS_URL, or make both the same"},
		{redisurl.Settings{URL: "redis+cluster://h", CacheDB: 0, StateDB: unset}, "redis+cluster://h:6379",
			"REDIS_URL: the Redis client uses only database 0 of a Cluster, even with Valkey 9, and it is the cache's; set REDIS_URL_STATE to a separate server for state"},
		{redisurl.Settings{URL: "redis+cluster://h", CacheDB: 1, StateDB: unset},
			"REDIS_DB_CACHE is 1: the Redis client uses only database 0 of a Cluster, even with Valkey 9", "REDIS_DB_CACHE is 1: the Redis client uses only database 0 of a Cluster, even with Valkey 9"},
		{redisurl.Settings{URL: "redis://h", StateURL: "redis://s/0", CacheDB: unset, StateDB: 0}, "redis://h:6379/0", "redis://s:6379/0"},
		{redisurl.Settings{URL: "redis://h", StateURL: "redis+cluster://s", CacheDB: unset, StateDB: unset}, "redis://h:6379/0", "redis+cluster://s:6379"},
		{redisurl.Settings{URL: "redis://h", StateURL: "redis://:secret@s/1", CacheDB: unset, StateDB: 2}, "redis://h:6379/0",
			"REDIS_DB_STATE is 2 and REDIS_URL_STATE names another database; remove the number from REDIS_URL_STATE, or make both the same"},
		{redisurl.Settings{URL: "redis://h/1", StateURL: "rediss://me:secret@H:6379/1", CacheDB: unset, StateDB: unset}, sameServer, sameServer},
		{redisurl.Settings{URL: "redis://h", StateURL: "redis://h", CacheDB: 1, StateDB: 1}, sameServer, sameServer},
		{redisurl.Settings{URL: "redis://h/1", StateURL: "redis://h", CacheDB: unset, StateDB: unset}, "redis://h:6379/1", "redis://h:6379/0"},
		{redisurl.Settings{URL: "redis://h", StateURL: "redis://h:7000", CacheDB: unset, StateDB: unset}, "redis://h:6379/0", "redis://h:7000/0"},
		{redisurl.Settings{URL: "redis+cluster://a,b", StateURL: "redis+cluster://b,c", CacheDB: unset, StateDB: unset},
			strings.ReplaceAll(sameServer, "both 1", "both 0"), strings.ReplaceAll(sameServer, "both 1", "both 0")},
		{redisurl.Settings{URL: "redis+sentinel://a,b/m/1", StateURL: "redis+sentinel://b,c/m/1", CacheDB: unset, StateDB: unset}, sameServer, sameServer},
		{redisurl.Settings{URL: "redis+sentinel://a/m", StateURL: "redis+sentinel://a/n", CacheDB: unset, StateDB: unset}, "redis+sentinel://a:26379/m/0", "redis+sentinel://a:26379/n/0"},
		{redisurl.Settings{URL: "redis://h/x", StateURL: "redis://s", CacheDB: unset, StateDB: unset}, "REDIS_URL: its database must be a number, 0 or more", "redis://s:6379/0"},
		{redisurl.Settings{StateURL: "redis://s", CacheDB: unset, StateDB: unset}, "no Redis given; set REDIS_URL, for example redis://127.0.0.1:6379/0", "redis://s:6379/0"},
		{redisurl.Settings{URL: "redis://:secret@h/x", StateURL: "redis://:sec/ret@s", CacheDB: unset, StateDB: unset},
			"REDIS_URL: its database must be a number, 0 or more",
			"REDIS_URL_STATE: it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?"},
	} {
		for role, want := range map[redisurl.Role]string{redisurl.Cache: c.cache, redisurl.State: c.state} {
			o, err := c.s.Options(role)
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = redisurl.Redacted(o)
			}
			if got != want {
				t.Errorf("%+v: %s is %s\nwant %s", c.s, role, got, want)
			}
		}
	}
	if o, err := (redisurl.Settings{URL: "redis://h"}).Options("session"); err == nil {
		t.Errorf("an unknown role has %+v", o)
	}
}

// The variables reach the options. Empty ones count as unset.
func TestFromEnv(t *testing.T) {
	for _, c := range []struct {
		url, tls, cache, state, urlState string
		want                             map[redisurl.Role]string
	}{
		{"redis://h", "true", "1", "2", "", map[redisurl.Role]string{redisurl.Cache: "rediss://h:6379/1", redisurl.State: "rediss://h:6379/2"}},
		{"redis://h/3", "", "", "", "redis://s", map[redisurl.Role]string{redisurl.Cache: "redis://h:6379/3", redisurl.State: "redis://s:6379/0"}},
		{"redis://h", "perhaps", "one", "-2", "", map[redisurl.Role]string{
			redisurl.Cache: "REDIS_TLS must be true or false\nREDIS_DB_CACHE must be the number of a database, for example 1\nREDIS_DB_STATE must be the number of a database, for example 1",
		}},
	} {
		t.Setenv("REDIS_URL", c.url)
		t.Setenv("REDIS_TLS", c.tls)
		t.Setenv("REDIS_DB_CACHE", c.cache)
		t.Setenv("REDIS_DB_STATE", c.state)
		t.Setenv("REDIS_URL_STATE", c.urlState)
		for role, want := range c.want {
			o, err := redisurl.FromEnv(role)
			if err != nil {
				if err.Error() != want {
					t.Errorf("%+v: %v\nwant %s", c, err, want)
				}
				continue
			}
			if got := redisurl.Redacted(o); got != want {
				t.Errorf("%+v: %s is %s: %+v\nwant %s", c, role, got, o, want)
			}
		}
	}
}

// The URL of each role may come from a file. Each new connection reads the password from it.
func TestFromEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("redis://app:first@h\n")
	t.Setenv("REDIS_URL_FILE", file)
	t.Setenv("REDIS_URL_STATE_FILE", file+"2")
	t.Setenv("REDIS_URL_STATE", "redis://x")
	_, err := redisurl.FromEnv(redisurl.Cache)
	if err == nil || err.Error() != "REDIS_URL_STATE and REDIS_URL_STATE_FILE are both set; unset one of them" {
		t.Fatal(err)
	}
	t.Setenv("REDIS_URL_STATE", "")
	if _, err := redisurl.FromEnv(redisurl.State); err == nil || !strings.HasPrefix(err.Error(), "REDIS_URL_STATE_FILE: open "+file+"2: ") {
		t.Fatal(err)
	}
	t.Setenv("REDIS_URL_STATE_FILE", "")
	t.Setenv("REDIS_DB_STATE", "1")
	for _, role := range []redisurl.Role{redisurl.Cache, redisurl.State} {
		write("redis://app:first@h\n")
		o, err := redisurl.FromEnv(role)
		if err != nil || !strings.HasPrefix(redisurl.Redacted(o), "redis://app:xxxxx@h:6379/") {
			t.Fatalf("%s: %+v, %v", role, o, err)
		}
		write("redis://app:second@h\n")
		if user, password, err := o.CredentialsProviderContext(t.Context()); user != "app" || password != "second" || err != nil {
			t.Errorf("%s: %s, %s, %v", role, user, password, err)
		}
		write("redis:/third")
		if _, _, err := o.CredentialsProviderContext(t.Context()); err == nil || !strings.Contains(err.Error(), "REDIS_URL_FILE "+file+": it must begin with") || strings.Contains(err.Error(), "third") {
			t.Error(err)
		}
	}
}
