package testenv

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// sharedZooKeeper is started by the first test that needs it, and stopped by Main.
var sharedZooKeeper = sync.OnceValues(func() (*servers.ZooKeeper, error) {
	z, err := servers.StartZooKeeper(context.Background(), servers.ZooKeeperOptions{})
	if err == nil {
		shared.add(z.Close)
	}
	return z, err
})

var zookeeperRoots atomic.Int64

// ZooKeeper returns three servers that the tests of a package share, and a path for the nodes of
// this test. A test that stops or freezes servers uses [OwnZooKeeper].
func ZooKeeper(t testing.TB) (z *servers.ZooKeeper, root string) {
	t.Helper()
	z, err := sharedZooKeeper()
	if err != nil {
		t.Fatal(err)
	}
	run.use(servers.KindZooKeeper.String(), servers.ShortVersion(z.Version()), fromLocal)
	return z, fmt.Sprintf("/test%d", zookeeperRoots.Add(1))
}

// OwnZooKeeper starts servers for one test that stops, freezes or configures them, or counts their
// work. config has further lines of their configuration.
func OwnZooKeeper(t testing.TB, number int, config string) *servers.ZooKeeper {
	t.Helper()
	z, err := servers.StartZooKeeper(t.Context(), servers.ZooKeeperOptions{Servers: number, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	})
	run.use(servers.KindZooKeeper.String(), servers.ShortVersion(z.Version()), fromLocal)
	return z
}
