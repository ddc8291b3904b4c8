package verifylocks_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/servers"
)

// The clock of a server of ZooKeeper, a program in Java, is set, forward and back.
func TestLibraryInJava(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	library, err := clock.Library(t.TempDir())
	must(err)
	file, err := clock.NewFile(filepath.Join(t.TempDir(), "offset"))
	must(err)
	t.Cleanup(func() { must(file.Close()) })
	server, err := servers.StartZooKeeper(t.Context(), servers.ZooKeeperOptions{Servers: 1, Env: [][]string{{library, file.Env()}}})
	must(err)
	t.Cleanup(func() { must(server.Close()) })
	conn, _, err := zk.Connect(server.Addrs(), time.Minute, zk.WithLogInfo(false))
	must(err)
	t.Cleanup(conn.Close)
	for i, jump := range []time.Duration{0, time.Hour, -24 * time.Hour, 0} {
		file.Set(jump)
		path := fmt.Sprint("/node", i)
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		must(err)
		_, stat, err := conn.Exists(path)
		must(err)
		// a busy machine may be late by minutes
		if ahead := time.Until(time.UnixMilli(stat.Ctime)).Round(30 * time.Minute); ahead != jump {
			t.Errorf("the clock is ahead by %s, wanted %s", ahead, jump)
		}
	}
}
