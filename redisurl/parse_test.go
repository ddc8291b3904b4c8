package redisurl_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// read reads a URL that is well.
func read(url string, forceTLS bool) *redis.UniversalOptions {
	o, err := redisurl.Parse(url, forceTLS)
	if err != nil {
		panic(err)
	}
	return o
}

// Good URLs, and what they are shown as in a log.
func TestRedacted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    *redis.UniversalOptions
		want string
	}{
		{read("redis://localhost", false), "redis://localhost:6379/0"},
		{read("redis://localhost:7000/3", false), "redis://localhost:7000/3"},
		{read("redis://localhost/?db=3", false), "redis://localhost:6379/3"},
		{read("redis://localhost", true), "rediss://localhost:6379/0"},
		{read("rediss://me:se%40cret@[::1]:7000?skip_verify=true", false), "rediss://me:xxxxx@[::1]:7000/0?skip_verify=true"},
		{read("redis://:secret@localhost", false), "redis://:xxxxx@localhost:6379/0"},
		{read("redis://:s:e@c,ret@localhost", false), "redis://:xxxxx@localhost:6379/0"},
		{read("redis+cluster://a,b:7000,[::1]", false), "redis+cluster://a:6379,b:7000,[::1]:6379"},
		{read("rediss+cluster://me:secret@a/0", false), "rediss+cluster://me:xxxxx@a:6379"},
		{read("redis+sentinel://a,b:7000/shop", false), "redis+sentinel://a:26379,b:7000/shop/0"},
		{read("redis+sentinel://a/shop/4", false), "redis+sentinel://a:26379/shop/4"},
		{read("redis+sentinel://a/4?master=shop", false), "redis+sentinel://a:26379/shop/4"},
		{read("redis+sentinel://a?master=shop&db=4", false), "redis+sentinel://a:26379/shop/4"},
		{read("rediss+sentinel://me:secret@a/shop?sentinel_username=it&sentinel_password=secret", false),
			"rediss+sentinel://me:xxxxx@a:26379/shop/0?sentinel_username=it&sentinel_password=xxxxx"},
		{read("redis+sentinel://a?&master=s+h%2fop&sentinel_username=i+t%20;%26=", false),
			"redis+sentinel://a:26379/s+h%2Fop/0?sentinel_username=i%2Bt%20%3B%26%3D"},
		{read("redis://bücher.example_1", false), "redis://bücher.example_1:6379/0"},
	} {
		if got := redisurl.Redacted(c.o); got != c.want {
			t.Errorf("%s is shown, want %s", got, c.want)
		}
	}
}

// Bad URLs, with the whole text of each error. None shows a password.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const scheme = "it must begin with redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"
	const stray = "it has @ or # after the host; in a password write %40 for @, %23 for #, %2F for / and %3F for ?"
	const unprintable = "host 1 of 1: it has a space or a character that cannot be printed"
	const database = "its database must be a number, 0 or more"
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
		{"redis://ho st", unprintable},
		{"redis://ho\nst", unprintable},
		{"redis://ho\x1bst:7000/1", unprintable},
		{"redis://ho\u202est", unprintable},
		{"redis://ho\x9bst", unprintable},
		{"redis+cluster://a, b", "host 2 of 2: it has a space or a character that cannot be printed"},
		{"redis://app:12/s3cret", database},
		{"redis://host/-1", database},
		{"redis+cluster://app:12/345", "its database is not 0: the Redis client uses only database 0 of a Cluster, even with Valkey 9"},
		{"redis://host/1/2", "its path has too many parts"},
		{"redis://host/1?db=1", "it gives the database twice, in the path and as an option"},
		{"redis://host?db=1&db=2", "it gives the option db twice"},
		{"redis://:secret@host?read_timeout=3s", "it has an unknown option; known are db, skip_verify; write %26 for & in a password"},
		{"redis://host?master=shop", "it has an unknown option; known are db, skip_verify; write %26 for & in a password"},
		{"redis+sentinel://h/m?sentinel_password=abc&S3cret",
			"it has an unknown option; known are db, master, sentinel_password, sentinel_username, skip_verify; write %26 for & in a password"},
		{"redis://host?db=%zz", "its query has a % that is not an escape; write %25 for %"},
		{"redis://host?d%b=1", "its query has a % that is not an escape; write %25 for %"},
		{"rediss://host?skip_verify=s3cret", "its option skip_verify must be true or false"},
		{"redis://host?skip_verify=true", "skip_verify is set but TLS is off"},
		{"redis+sentinel://host", "it names no master; write redis+sentinel://host:port/master"},
		{"redis+sentinel://host?master=", "it names no master; write redis+sentinel://host:port/master"},
	} {
		if o, err := redisurl.Parse(c.url, false); o != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: %+v, %v\nwant %s", c.url, o, err, c.want)
		}
	}
}

// sentinelEscape escapes no more than the errors name.
var sentinelEscape = strings.NewReplacer("%", "%25", "&", "%26", "@", "%40", "#", "%23")

// Any user and password reach the client unchanged if they are escaped as in URLs. None of them
// gets into a log, and every unreadable text returns an error.
func FuzzURL(f *testing.F) {
	f.Add("user", "pa:ss/w?r#d@%", "redis+cluster://a,b:1?db=0")
	f.Add("u", "a+b c;d=&e/?", "redis+sentinel://a/shop?sentinel_password=a+b&S3cret")
	f.Add("", "secret", "redis+sentinel://[::1]:7000,b/shop/4?sentinel_password=x")
	f.Add("u", "", "rediss://u:p@h:1/2?skip_verify=true")
	f.Fuzz(func(t *testing.T, user, password, raw string) {
		if o, err := redisurl.Parse(raw, false); err == nil {
			_ = redisurl.Redacted(o)
		}
		o := read("redis://"+url.UserPassword(user, password).String()+"@host", false)
		client := o.Simple()
		if client.Username != user || client.Password != password {
			t.Errorf("%q and %q became %q and %q", user, password, client.Username, client.Password)
		}
		if got := read("redis+sentinel://h/m?sentinel_password="+sentinelEscape.Replace(password), false).SentinelPassword; got != password {
			t.Errorf("%q of sentinels became %q", password, got)
		}
		other := read("redis://"+url.UserPassword(user, "other").String()+"@host", false)
		if shown := redisurl.Redacted(o); password != "" && shown != redisurl.Redacted(other) {
			t.Errorf("%s shows the password", shown)
		}
	})
}
