package keyspace_test

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
)

func number(n int) *int { return &n }

// Good URLs, and what they are shown as in a log (O1, S2).
func TestOptionsRedacted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    keyspace.Options
		want string
	}{
		{keyspace.Options{URL: "redis://localhost"}, "redis://localhost:6379/0"},
		{keyspace.Options{URL: "redis://localhost:7000/3"}, "redis://localhost:7000/3"},
		{keyspace.Options{URL: "redis://localhost/?db=3"}, "redis://localhost:6379/3"},
		{keyspace.Options{URL: "redis://localhost/3", DB: number(0)}, "redis://localhost:6379/0"},
		{keyspace.Options{URL: "redis://localhost", TLS: true}, "rediss://localhost:6379/0"},
		{keyspace.Options{URL: "redis://localhost", TLSConfig: &tls.Config{}}, "rediss://localhost:6379/0"},
		{keyspace.Options{URL: "rediss://me:se%40cret@[::1]:7000?skip_verify=true"}, "rediss://me:xxxxx@[::1]:7000/0?skip_verify=true"},
		{keyspace.Options{URL: "redis://:secret@localhost"}, "redis://:xxxxx@localhost:6379/0"},
		{keyspace.Options{URL: "redis://:s:e@c,ret@localhost"}, "redis://:xxxxx@localhost:6379/0"},
		{keyspace.Options{URL: "redis+cluster://a,b:7000,[::1]"}, "redis+cluster://a:6379,b:7000,[::1]:6379"},
		{keyspace.Options{URL: "rediss+cluster://me:secret@a/0"}, "rediss+cluster://me:xxxxx@a:6379"},
		{keyspace.Options{URL: "redis+sentinel://a,b:7000/shop"}, "redis+sentinel://a:26379,b:7000/shop/0"},
		{keyspace.Options{URL: "redis+sentinel://a/shop/4"}, "redis+sentinel://a:26379/shop/4"},
		{keyspace.Options{URL: "redis+sentinel://a/4?master=shop"}, "redis+sentinel://a:26379/shop/4"},
		{keyspace.Options{URL: "redis+sentinel://a?master=shop&db=4"}, "redis+sentinel://a:26379/shop/4"},
		{keyspace.Options{URL: "rediss+sentinel://me:secret@a/shop?sentinel_username=it&sentinel_password=secret"},
			"rediss+sentinel://me:xxxxx@a:26379/shop/0?sentinel_username=it&sentinel_password=xxxxx"},
		{keyspace.Options{URL: "http://user:secret@host"}, "(unreadable redis url)"},
	} {
		if got := c.o.Redacted(); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.o.URL, got, c.want)
		}
	}
}

// Bad options, with the whole text of each error. None shows a password.
func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	const scheme = "option URL: it must begin with redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"
	const stray = "option URL: it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?"
	for _, c := range []struct {
		o    keyspace.Options
		want string
	}{
		{keyspace.Options{}, scheme},
		{keyspace.Options{URL: "localhost:6379"}, scheme},
		{keyspace.Options{URL: "http://user:secret@host"}, scheme},
		{keyspace.Options{URL: "redis://:sec/ret@host"}, stray},
		{keyspace.Options{URL: "redis://:sec?ret@host"}, stray},
		{keyspace.Options{URL: "redis://:sec#ret@host"}, stray},
		{keyspace.Options{URL: "redis://:sec%ret@host"}, "option URL: its user or password has a % that is no escape; write %25 for %"},
		{keyspace.Options{URL: "redis://"}, "option URL: host 1 of 1: it is empty"},
		{keyspace.Options{URL: "redis+cluster://a,,b"}, "option URL: host 2 of 3: it is empty"},
		{keyspace.Options{URL: "redis://a,b"}, "option URL: it names several hosts; use redis+cluster:// or redis+sentinel://"},
		{keyspace.Options{URL: "redis://user:secret"}, "option URL: host 1 of 1: its port is no number from 1 to 65535"},
		{keyspace.Options{URL: "redis://host:0"}, "option URL: host 1 of 1: its port is no number from 1 to 65535"},
		{keyspace.Options{URL: "redis://host:65536"}, "option URL: host 1 of 1: its port is no number from 1 to 65535"},
		{keyspace.Options{URL: "redis://[::1"}, "option URL: host 1 of 1: it opens [ and doesn't close it"},
		{keyspace.Options{URL: "redis://[::1]7000"}, "option URL: host 1 of 1: its port is no number from 1 to 65535"},
		{keyspace.Options{URL: "redis://[host]:7000"}, "option URL: host 1 of 1: what stands in [] is no IP address"},
		{keyspace.Options{URL: "redis://::1"}, "option URL: host 1 of 1: it is empty"},
		{keyspace.Options{URL: "redis://host/shop"}, `option URL: its database is "shop": it must be a number, 0 or more`},
		{keyspace.Options{URL: "redis://host/-1"}, `option URL: its database is "-1": it must be a number, 0 or more`},
		{keyspace.Options{URL: "redis://host/1/2"}, "option URL: its path has too many parts"},
		{keyspace.Options{URL: "redis://host/1?db=1"}, "option URL: it gives the database twice, in the path and as an option"},
		{keyspace.Options{URL: "redis://host?db=1&db=2"}, "option URL: it gives the option db twice"},
		{keyspace.Options{URL: "redis://:secret@host?read_timeout=3s"}, `option URL: it has an unknown option "read_timeout"; known are db, skip_verify`},
		{keyspace.Options{URL: "redis://host?master=shop"}, `option URL: it has an unknown option "master"; known are db, skip_verify`},
		{keyspace.Options{URL: "redis://host?db=%zz"}, "option URL: its query can't be read; write %25 for %, %26 for & and %3B for ;"},
		{keyspace.Options{URL: "rediss://host?skip_verify=maybe"}, `option URL: its option skip_verify is "maybe": it must be true or false`},
		{keyspace.Options{URL: "redis://host?skip_verify=true"}, "option URL: skip_verify is set but TLS is off"},
		{keyspace.Options{URL: "redis+sentinel://host"}, "option URL: it names no master; write redis+sentinel://host:port/master"},
		{keyspace.Options{URL: "redis+sentinel://host?master="}, "option URL: it names no master; write redis+sentinel://host:port/master"},
		{keyspace.Options{URL: "redis+cluster://host/1"}, "option DB is 1: Redis Cluster has only database 0"},
		{keyspace.Options{URL: "redis+cluster://host", DB: number(2)}, "option DB is 2: Redis Cluster has only database 0"},
		{keyspace.Options{URL: "redis://host", DB: number(-1)}, "option DB is -1: it must be 0 or more"},
		{keyspace.Options{URL: "redis://host", Timeout: time.Millisecond, PoolSize: 1},
			"option Timeout is 1ms: it must be from 50ms to 5s\noption PoolSize is 1: it must be 2 or more"},
		{keyspace.Options{URL: "redis://host", Timeout: time.Minute}, "option Timeout is 1m0s: it must be from 50ms to 5s"},
	} {
		err := c.o.WithDefaults().Validate()
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v\nwant %s", c.o, err, c.want)
		}
		if _, again := keyspace.Open(c.o); again == nil || !strings.HasSuffix(again.Error(), c.want) {
			t.Errorf("%+v: Open says %v", c.o, again)
		}
	}
}

// What the URL says reaches the client, unescaped.
func TestOptionsReachTheClient(t *testing.T) {
	t.Parallel()
	k := open(t, keyspace.Options{URL: "redis://m%40e:s%2Fe%3Ac@host:7000/3", TLS: true, Timeout: 70 * time.Millisecond})
	o := k.Client().(*redis.Client).Options()
	if o.Username != "m@e" || o.Password != "s/e:c" || o.Addr != "host:7000" || o.DB != 3 || o.TLSConfig == nil ||
		o.ReadTimeout != 70*time.Millisecond || o.MaxRetries != 1 || !o.ContextTimeoutEnabled {
		t.Errorf("%+v", o)
	}
	k = open(t, keyspace.Options{URL: "rediss+cluster://me:secret@a,b?skip_verify=1"})
	c := k.Client().(*redis.ClusterClient).Options()
	if len(c.Addrs) != 2 || c.Password != "secret" || !c.TLSConfig.InsecureSkipVerify || c.ReadOnly {
		t.Errorf("%+v", c)
	}
}

// Any user and password reach the client as they are, if they are escaped as
// URLs want it; none of them gets into a log; and no text makes reading fail
// in another way than by an error.
func FuzzURL(f *testing.F) {
	f.Add("user", "pa:ss/w?r#d@%", "redis+cluster://a,b:1?db=0")
	f.Add("", "secret", "redis+sentinel://[::1]:7000,b/shop/4?sentinel_password=x")
	f.Add("u", "", "rediss://u:p@h:1/2?skip_verify=true")
	f.Fuzz(func(t *testing.T, user, password, raw string) {
		_ = keyspace.Options{URL: raw}.WithDefaults().Validate()
		_ = keyspace.Options{URL: raw}.Redacted()

		o := keyspace.Options{URL: "redis://" + url.UserPassword(user, password).String() + "@host"}
		k, err := keyspace.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		client := k.Client().(*redis.Client).Options()
		if client.Username != user || client.Password != password {
			t.Errorf("%q and %q became %q and %q", user, password, client.Username, client.Password)
		}
		other := keyspace.Options{URL: "redis://" + url.UserPassword(user, "other").String() + "@host"}
		if password != "" && o.Redacted() != other.Redacted() {
			t.Errorf("%s shows the password", o.Redacted())
		}
	})
}
