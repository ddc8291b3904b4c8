package keyspace_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// onDB is at, with another database.
func onDB(url string, db int) *redis.UniversalOptions {
	o := at(url)
	o.DB = db
	return o
}

// Good URLs, and what they are shown as in a log.
func TestOptionsRedacted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    *redis.UniversalOptions
		want string
	}{
		{at("redis://localhost"), "redis://localhost:6379/0"},
		{at("redis://localhost:7000/3"), "redis://localhost:7000/3"},
		{at("redis://localhost/?db=3"), "redis://localhost:6379/3"},
		{onDB("redis://localhost/3", 0), "redis://localhost:6379/0"},
		{withTLS("redis://localhost"), "rediss://localhost:6379/0"},
		{trusting("redis://localhost", &tls.Config{}), "rediss://localhost:6379/0"},
		{at("rediss://me:se%40cret@[::1]:7000?skip_verify=true"), "rediss://me:xxxxx@[::1]:7000/0?skip_verify=true"},
		{at("redis://:secret@localhost"), "redis://:xxxxx@localhost:6379/0"},
		{at("redis://:s:e@c,ret@localhost"), "redis://:xxxxx@localhost:6379/0"},
		{at("redis+cluster://a,b:7000,[::1]"), "redis+cluster://a:6379,b:7000,[::1]:6379"},
		{at("rediss+cluster://me:secret@a/0"), "rediss+cluster://me:xxxxx@a:6379"},
		{at("redis+sentinel://a,b:7000/shop"), "redis+sentinel://a:26379,b:7000/shop/0"},
		{at("redis+sentinel://a/shop/4"), "redis+sentinel://a:26379/shop/4"},
		{at("redis+sentinel://a/4?master=shop"), "redis+sentinel://a:26379/shop/4"},
		{at("redis+sentinel://a?master=shop&db=4"), "redis+sentinel://a:26379/shop/4"},
		{at("rediss+sentinel://me:secret@a/shop?sentinel_username=it&sentinel_password=secret"),
			"rediss+sentinel://me:xxxxx@a:26379/shop/0?sentinel_username=it&sentinel_password=xxxxx"},
	} {
		if got := (keyspace.Options{Redis: c.o}).Redacted(); got != c.want {
			t.Errorf("%s is shown, want %s", got, c.want)
		}
	}
}

// Bad URLs, with the whole text of each error. None shows a password.
func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	const scheme = "it must begin with redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"
	const stray = "it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?"
	for _, c := range []struct{ url, want string }{
		{"", scheme},
		{"localhost:6379", scheme},
		{"http://user:secret@host", scheme},
		{"redis://:sec/ret@host", stray},
		{"redis://:sec?ret@host", stray},
		{"redis://:sec#ret@host", stray},
		{"redis://:sec%ret@host", "its user or password has a % that is not an escape; write %25 for %"},
		{"redis://", "host 1 of 1: it is empty"},
		{"redis+cluster://a,,b", "host 2 of 3: it is empty"},
		{"redis://a,b", "it names several hosts; use redis+cluster:// or redis+sentinel://"},
		{"redis://user:secret", "host 1 of 1: its port is not a number from 1 to 65535"},
		{"redis://host:0", "host 1 of 1: its port is not a number from 1 to 65535"},
		{"redis://host:65536", "host 1 of 1: its port is not a number from 1 to 65535"},
		{"redis://[::1", "host 1 of 1: it opens [ and does not close it"},
		{"redis://[::1]7000", "host 1 of 1: its port is not a number from 1 to 65535"},
		{"redis://[host]:7000", "host 1 of 1: what stands in [] is not an IP address"},
		{"redis://::1", "host 1 of 1: it is empty"},
		{"redis://host/shop", `its database is "shop": it must be a number, 0 or more`},
		{"redis://host/-1", `its database is "-1": it must be a number, 0 or more`},
		{"redis://host/1/2", "its path has too many parts"},
		{"redis://host/1?db=1", "it gives the database twice, in the path and as an option"},
		{"redis://host?db=1&db=2", "it gives the option db twice"},
		{"redis://:secret@host?read_timeout=3s", `it has an unknown option "read_timeout"; known are db, skip_verify`},
		{"redis://host?master=shop", `it has an unknown option "master"; known are db, skip_verify`},
		{"redis://host?db=%zz", "its query cannot be read; write %25 for %, %26 for & and %3B for ;"},
		{"rediss://host?skip_verify=maybe", `its option skip_verify is "maybe": it must be true or false`},
		{"redis://host?skip_verify=true", "skip_verify is set but TLS is off"},
		{"redis+sentinel://host", "it names no master; write redis+sentinel://host:port/master"},
		{"redis+sentinel://host?master=", "it names no master; write redis+sentinel://host:port/master"},
	} {
		if o, err := keyspace.ParseURL(c.url, false); o != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: %+v, %v\nwant %s", c.url, o, err, c.want)
		}
	}
}

// Bad options, with the whole text of each error.
func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	small := at("redis://host")
	small.PoolSize = 1
	for _, c := range []struct {
		o    keyspace.Options
		want string
	}{
		{keyspace.Options{}, "option Redis is missing"},
		{keyspace.Options{Redis: &redis.UniversalOptions{}}, "option Addrs is empty: it must name a host:port"},
		{keyspace.Options{Redis: at("redis+cluster://host/1")}, "option DB is 1: Redis Cluster has only database 0"},
		{keyspace.Options{Redis: onDB("redis+cluster://host", 2)}, "option DB is 2: Redis Cluster has only database 0"},
		{keyspace.Options{Redis: onDB("redis://host", -1)}, "option DB is -1: it must be 0 or more"},
		{keyspace.Options{Redis: small, Timeout: time.Millisecond},
			"option PoolSize is 1: it must be 2 or more\noption Timeout is 1ms: it must be from 50ms to 5s"},
		{keyspace.Options{Redis: at("redis://host"), Timeout: time.Minute}, "option Timeout is 1m0s: it must be from 50ms to 5s"},
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

// The settings of the URL reach the client, unescaped.
func TestOptionsReachTheClient(t *testing.T) {
	t.Parallel()
	k := open(t, keyspace.Options{Redis: withTLS("redis://m%40e:s%2Fe%3Ac@host:7000/3"), Timeout: 70 * time.Millisecond})
	o := k.Nodes.Client().(*redis.Client).Options()
	if o.Username != "m@e" || o.Password != "s/e:c" || o.Addr != "host:7000" || o.DB != 3 || o.TLSConfig == nil ||
		o.ReadTimeout != 70*time.Millisecond || o.MaxRetries != 1 || !o.ContextTimeoutEnabled {
		t.Errorf("%+v", o)
	}
	k = open(t, keyspace.Options{Redis: at("rediss+cluster://me:secret@a,b?skip_verify=1")})
	c := k.Nodes.Client().(*redis.ClusterClient).Options()
	if len(c.Addrs) != 2 || c.Password != "secret" || !c.TLSConfig.InsecureSkipVerify || c.ReadOnly {
		t.Errorf("%+v", c)
	}
}

// Settings that change the meaning of commands, or how often they are sent, stay with this package.
// It uses a dialer of the caller.
func TestOptionsThatStayOurs(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	o := at(server.URL)
	o.ReadOnly, o.RouteRandomly, o.MaxRetries, o.ReadTimeout = true, true, 9, time.Hour
	var dialled atomic.Int32
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	k := open(t, keyspace.Options{Redis: o})
	if err := k.Nodes.Ping(t.Context()); err != nil || dialled.Load() == 0 {
		t.Errorf("%d connections were dialled, %v", dialled.Load(), err)
	}
	if got := k.Nodes.Client().(*redis.Client).Options(); got.MaxRetries != 1 || got.ReadTimeout != patient {
		t.Errorf("%+v", got)
	}
	cluster := at("redis+cluster://a")
	cluster.ReadOnly, cluster.RouteByLatency = true, true
	if got := open(t, keyspace.Options{Redis: cluster}).Nodes.Client().(*redis.ClusterClient).Options(); got.ReadOnly || got.RouteByLatency || got.MaxRedirects != 2 {
		t.Errorf("%+v", got)
	}
}

// Any user and password reach the client unchanged if they are escaped as in URLs. None of them
// gets into a log, and every unreadable text returns an error.
func FuzzURL(f *testing.F) {
	f.Add("user", "pa:ss/w?r#d@%", "redis+cluster://a,b:1?db=0")
	f.Add("", "secret", "redis+sentinel://[::1]:7000,b/shop/4?sentinel_password=x")
	f.Add("u", "", "rediss://u:p@h:1/2?skip_verify=true")
	f.Fuzz(func(t *testing.T, user, password, raw string) {
		if o, err := keyspace.ParseURL(raw, false); err == nil {
			_ = keyspace.Options{Redis: o}.WithDefaults().Validate()
			_ = keyspace.Options{Redis: o}.Redacted()
		}
		o := keyspace.Options{Redis: at("redis://" + url.UserPassword(user, password).String() + "@host")}
		k, err := keyspace.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		client := k.Nodes.Client().(*redis.Client).Options()
		if client.Username != user || client.Password != password {
			t.Errorf("%q and %q became %q and %q", user, password, client.Username, client.Password)
		}
		other := keyspace.Options{Redis: at("redis://" + url.UserPassword(user, "other").String() + "@host")}
		if password != "" && o.Redacted() != other.Redacted() {
			t.Errorf("%s shows the password", o.Redacted())
		}
	})
}
