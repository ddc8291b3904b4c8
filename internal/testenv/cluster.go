package testenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
)

// clusterSlots is the number of hash slots of a Redis Cluster.
const clusterSlots = 16384

// A Cluster is a Redis Cluster for one test: masters, each with an equal share of the slots, and
// one replica for each or none. All are local processes, with a node timeout of two seconds.
type Cluster struct {
	Nodes  []*servers.Redis // the masters, then the replica of each
	Direct []*redis.Client  // one for each node
	IDs    []string         // of the nodes
	Client *redis.ClusterClient

	masters int
}

// URL returns the cluster's address for package keyspace.
func (c *Cluster) URL() string {
	hosts := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		hosts[i] = n.Addr()
	}
	return "redis+cluster://" + strings.Join(hosts, ",")
}

// First returns the first slot of a master, provided that no slot has moved.
func (c *Cluster) First(master int) int { return (clusterSlots*master + c.masters - 1) / c.masters }

// OwnCluster starts a cluster, and returns when all its nodes report it as healthy. args are
// further options of each node.
func OwnCluster(t testing.TB, masters int, replicas bool, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{masters: masters}
	nodes := masters
	if replicas {
		nodes *= 2
	}
	var addrs []string
	for i := range nodes {
		bus := BusPort(t)
		node := OwnRedis(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
			"--cluster-port", strconv.Itoa(bus), "--cluster-config-file", filepath.Join(NodesFolder(t), "nodes.conf"),
			"--repl-diskless-sync-delay", "0"}, args...)...)
		options, err := redis.ParseURL(node.URL())
		if err != nil {
			t.Fatal(err)
		}
		direct := redis.NewClient(options)
		t.Cleanup(func() { _ = direct.Close() })
		if err := c.introduce(t.Context(), direct, i, bus, node.Port()); err != nil {
			t.Fatal(err)
		}
		c.Nodes, c.Direct = append(c.Nodes, node), append(c.Direct, direct)
		c.IDs = append(c.IDs, direct.Do(t.Context(), "cluster", "myid").Val().(string))
		addrs = append(addrs, node.Addr())
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", nodes)
	for i, direct := range c.Direct {
		if i >= masters {
			Eventually(t, "a replica to be accepted", func() bool {
				return direct.Do(t.Context(), "cluster", "replicate", c.IDs[i-masters]).Err() == nil
			})
		}
		Eventually(t, "the cluster to form", func() bool {
			info := direct.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known)
		})
	}
	for _, direct := range c.Direct {
		Eventually(t, "replication", func() bool {
			nodes := direct.ClusterNodes(t.Context()).Val()
			info := direct.InfoMap(t.Context(), "replication").Val()["Replication"]
			follows := info["master_link_status"] == "up"
			if info["role"] == "master" {
				follows = onlineReplicas(t, direct) == len(c.Nodes)/masters-1
			}
			return strings.Count(nodes, "slave ") == len(c.Nodes)-masters && follows
		})
	}
	first := c.Nodes[0]
	run.use(first.Program().Name+" Cluster", servers.ShortVersion(first.Version()), fromLocal)
	c.Client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = c.Client.Close() })
	return c
}

// Migrate moves the keys of a slot from one master to another, given by their indexes in Nodes. If
// the slot should arrive, it then moves the slot itself.
func (c *Cluster) Migrate(t testing.TB, slot, from, to int, arrives bool) {
	t.Helper()
	do := func(node int, args ...any) {
		t.Helper()
		if err := c.Direct[node].Do(t.Context(), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	do(to, "cluster", "setslot", slot, "importing", c.IDs[from])
	do(from, "cluster", "setslot", slot, "migrating", c.IDs[to])
	for {
		found, err := c.Direct[from].ClusterGetKeysInSlot(t.Context(), slot, 2000).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			break
		}
		args := []any{"migrate", "127.0.0.1", c.Nodes[to].Port(), "", 0, 60_000, "replace", "keys"}
		for _, key := range found {
			args = append(args, key)
		}
		do(from, args...)
	}
	if arrives {
		do(to, "cluster", "setslot", slot, "node", c.IDs[to])
		do(from, "cluster", "setslot", slot, "node", c.IDs[to])
	}
}

// MovesAtomically reports whether the server has CLUSTER MIGRATESLOTS, as Valkey 9 has.
func (c *Cluster) MovesAtomically(t testing.TB) bool {
	t.Helper()
	return c.Direct[0].Do(t.Context(), "cluster", "getslotmigrations").Err() == nil
}

// Move moves a slot from one master to another, atomically if the server can, and waits until both
// know it.
func (c *Cluster) Move(t testing.TB, slot, from, to int) {
	t.Helper()
	if !c.MovesAtomically(t) {
		c.Migrate(t, slot, from, to, true)
		return
	}
	if err := c.Direct[from].Do(t.Context(), "cluster", "migrateslots", "slotsrange", slot, slot, "node", c.IDs[to]).Err(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the slot to arrive", func() bool {
		return c.OwnerAt(t, from, slot) == c.IDs[to] && c.OwnerAt(t, to, slot) == c.IDs[to]
	})
}

// OwnerAt returns the ID of the master of a slot as a node knows it, or "".
func (c *Cluster) OwnerAt(t testing.TB, node, slot int) string {
	t.Helper()
	shards, err := c.Direct[node].ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }) {
			return s.Nodes[0].ID
		}
	}
	return ""
}

// introduce assigns a node its slots, if it is a master, and introduces it to the first node.
func (c *Cluster) introduce(ctx context.Context, direct *redis.Client, i, bus, port int) error {
	if i < c.masters {
		for _, command := range [][]any{
			{"cluster", "addslotsrange", c.First(i), c.First(i+1) - 1},
			{"cluster", "set-config-epoch", i + 1},
		} {
			if err := direct.Do(ctx, command...).Err(); err != nil {
				return err
			}
		}
	}
	if i == 0 {
		return nil
	}
	return c.Direct[0].Do(ctx, "cluster", "meet", "127.0.0.1", port, bus).Err()
}

// NodesFolder returns a directory for the file in which a node stores the state of its cluster, in
// memory if the system has such a place. A node answers no client while it waits for that file to
// reach a disk, which takes seconds on a busy one.
func NodesFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "unstale-cluster-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// BusPort returns a free port for the cluster bus, outside of the ranges that the kernel and
// package servers take ports from.
func BusPort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 11000 + rand.IntN(8000)
		if l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port for the cluster bus")
	return 0
}
