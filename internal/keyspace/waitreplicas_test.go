package keyspace_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

// With WaitReplicas nothing counts as done before a replica has it; without one it is an outage
// that passes.
func TestWaitForReplica(t *testing.T) {
	t.Parallel()
	master, replica := testenv.OwnRedis(t, "--repl-diskless-sync-delay", "0"), testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(master.URL()), BeaconTTL: time.Hour, WaitReplicas: 1, Timeout: time.Second})
	_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateNoReplicas)
	if err := testenv.Client(t, replica.URL()).Do(t.Context(), "replicaof", "127.0.0.1", master.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a replica", func() bool { _, err := k.Unlinker.Unlink(t.Context(), targets("a")); return err == nil })
	fill(t, k.Nodes.Client(), "b")
	mustUnlink(t, k, targets("b"))
	wantLeft(t, testenv.Client(t, replica.URL()), []string{"b"})

	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err = k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateNoReplicas)
	_, err = k.Beacons.CheckBeacon(t.Context())
	wantOutage(t, err, keyspace.StateNoReplicas)
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "recovery", func() bool { _, err := k.Unlinker.Unlink(t.Context(), targets("a")); return err == nil })
}

// In a Cluster each master waits for its own replicas: here there are none.
func testClusterWait(t *testing.T, c *testCluster) {
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour, WaitReplicas: 1, Timeout: time.Second})
	_, err := k.Unlinker.Unlink(t.Context(), targets(names(10, "key:%d")...))
	wantOutage(t, err, keyspace.StateNoReplicas)
}
