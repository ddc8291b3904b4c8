//go:build soak

package maintenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// After a failover in a Cluster, checks of the keys of that master are unknown, whether its replica
// has all writes or not. Those of other masters are not, and later batches are checked again.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, true)
	b := newBench(t, c.URL(), c.Client)
	key := func(master int) string { // on a master
		for i := 0; ; i++ {
			name := fmt.Sprint("key:", i)
			if slot := int(protocol.Slot(name)); c.First(master) <= slot && slot < c.First(master+1) {
				return name
			}
		}
	}
	lost, handed, other := key(0), key(1), key(2)
	follow := func(name string, node int) {
		testenv.Eventually(t, "the clients to follow", func() bool {
			c.Client.ReloadState(t.Context())
			master, err := c.Client.MasterForKey(t.Context(), name)
			if err != nil || master.Options().Addr != c.Nodes[node].Addr() {
				return false
			}
			u, err := b.k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "another:{" + name + "}"}})
			if err != nil || len(u.Failures) > 0 { // a loss of writes is one error
				return false
			}
			seen, _, err := b.k.Entries.Look(t.Context(), []keyspace.Asked{{Key: name}})
			return err == nil && seen[0].Err == nil && seen[0].Master.Addr == c.Nodes[node].Addr()
		})
	}

	b.set(lost, entry(b.now(lost)))
	conn := c.Direct[0]
	testenv.Eventually(t, "the replica to have it", func() bool { return c.Direct[3].DBSize(t.Context()).Val() == conn.DBSize(t.Context()).Val() })
	if err := c.Nodes[3].Pause(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Do(t.Context(), "client", "kill", "type", "replica").Err(); err != nil { // or it gets the rest later
		t.Fatal(err)
	}
	b.settle(lost, 0)
	b.settle(other, 0)
	b.set(other, b.later(other))
	if err := c.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Nodes[3].Resume(); err != nil {
		t.Fatal(err)
	}
	follow(lost, 3)
	if !b.exists(lost) {
		t.Fatal("the replica has received the UNLINK")
	}
	b.wantResults("a lagging replica took over", maintenance.Unknown, maintenance.Fresh)

	b.settle(handed, 0)
	b.set(handed, b.later(handed))
	testenv.Eventually(t, "the replica to take over", func() bool {
		_ = c.Direct[4].Do(t.Context(), "cluster", "failover").Err() // it is the master already
		return strings.Contains(c.Direct[4].ClusterNodes(t.Context()).Val(), "myself,master")
	})
	follow(handed, 4)
	b.wantResults("a replica took over with all writes", maintenance.Unknown)

	for _, name := range []string{lost, handed, other} {
		b.set(name, entry(b.settle(name, 0)-1))
		b.wantResults("a stale entry after it", maintenance.Found)
		if b.exists(name) {
			t.Errorf("%s is still there", name)
		}
		b.settle(name, 0)
		b.set(name, b.later(name))
		b.wantResults("a later entry after it", maintenance.Fresh)
	}
}
