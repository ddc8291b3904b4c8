package keyspace_test

import (
	"context"
	"net"
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
		{keyspace.Options{Redis: onDB("redis+cluster://host", 2)}, "option DB is 2: the Redis client uses only database 0 of a Cluster, even with Valkey 9"},
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
