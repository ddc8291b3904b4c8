package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

// Masters is the number of masters of a Cluster. Each has a replica, or none.
const Masters = 3

// slotCount is the number of hash slots of a Cluster. The fault suite shares no code with workers.
const slotCount = 16384

// A Cluster is a Redis Cluster. Node i and node i+Masters are a pair: one of them is the master of
// the other. One goroutine at a time disturbs it.
type Cluster struct {
	Nodes  []*Node
	Client *redis.ClusterClient

	ids []string // of the nodes
}

// StartCluster starts a cluster with replicas, and returns when all its nodes are ready. library is
// the result of clock.Library. The caller must Close the cluster.
func StartCluster(ctx context.Context, library string) (*Cluster, error) {
	return startCluster(ctx, library, Masters)
}

// StartMasters is like StartCluster, without replicas and clocks.
func StartMasters(ctx context.Context) (*Cluster, error) { return startCluster(ctx, "", 0) }

func startCluster(ctx context.Context, library string, replicas int) (c *Cluster, err error) {
	c = &Cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range Masters + replicas {
		if err := c.add(ctx, i, library); err != nil {
			return nil, fmt.Errorf("start node %d of a cluster: %w", i, err)
		}
	}
	c.Client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	for i := range replicas {
		replicate := func() bool { return c.do(ctx, i+Masters, "cluster", "replicate", c.ids[i]) == nil }
		if err := c.until(ctx, "a replica to be accepted", replicate); err != nil {
			return nil, err
		}
	}
	return c, c.Ready(ctx)
}

// add starts a node, gives it its slots, and introduces it to the first one.
func (c *Cluster) add(ctx context.Context, i int, library string) error {
	bus, err := servers.FreePort()
	if err != nil {
		return err
	}
	dir := "/dev/shm" // a node answers no client while it writes its state to a disk
	if _, err := os.Stat(dir); err != nil {
		dir = ""
	}
	n, err := StartNode(ctx, NodeOptions{Library: library, Dir: dir, Args: []string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "3000", "--cluster-port", strconv.Itoa(bus),
		"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no",
	}})
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	id, err := n.Client.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	c.ids = append(c.ids, id)
	if i < Masters {
		first := func(i int) int { return (slotCount*i + Masters - 1) / Masters }
		err = errors.Join(c.do(ctx, i, "cluster", "addslotsrange", first(i), first(i+1)-1), c.do(ctx, i, "cluster", "set-config-epoch", i+1))
	}
	if i > 0 && err == nil {
		err = c.do(ctx, 0, "cluster", "meet", "127.0.0.1", n.Server.Port(), bus)
	}
	return err
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Server.Addr())
	}
	return addrs
}

// Close ends the servers and the clients.
func (c *Cluster) Close() error {
	var errs []error
	if c.Client != nil {
		errs = append(errs, c.Client.Close())
	}
	for _, n := range c.Nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// do sends a command to a node.
func (c *Cluster) do(ctx context.Context, node int, args ...any) error {
	return c.Nodes[node].Client.Do(ctx, args...).Err()
}

// until waits for a condition.
func (c *Cluster) until(ctx context.Context, what string, is func() bool) error {
	for limit := time.Now().Add(time.Minute); !is(); {
		if err := sleep.For(ctx, nodeStep); err != nil || time.Now().After(limit) {
			return errors.Join(fmt.Errorf("wait for %s: not within a minute", what), err)
		}
	}
	return nil
}

// Ready waits until every node sees a healthy cluster, and every replica has what its master has.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.until(ctx, "the cluster to be healthy", func() bool {
		replicas := 0
		for _, n := range c.Nodes {
			state, _ := n.Client.ClusterInfo(ctx).Result() // an error is another state
			nodes, _ := n.Client.ClusterNodes(ctx).Result()
			if !strings.Contains(state, "cluster_state:ok") || strings.Contains(nodes, "fail") ||
				strings.Count(nodes, " connected") != len(c.Nodes) || strings.Contains(nodes, "handshake") {
				return false
			}
			info, _ := n.Client.InfoMap(ctx, "replication").Result()
			if info["Replication"]["master_link_status"] == "up" {
				replicas++
			}
		}
		return replicas == len(c.Nodes)-Masters
	})
}

// owners returns the node that has each slot, as soon as all nodes that answer agree.
func (c *Cluster) owners(ctx context.Context) (owner [slotCount]int, err error) {
	err = c.until(ctx, "the nodes to agree on the owners of slots", func() bool {
		var views [][slotCount]int
		for _, n := range c.Nodes {
			if nodes, err := n.Client.ClusterNodes(ctx).Result(); err == nil {
				views = append(views, c.view(nodes))
			}
		}
		if len(views) < 2 || slices.ContainsFunc(views, func(v [slotCount]int) bool { return v != views[0] }) {
			return false
		}
		owner = views[0]
		return true
	})
	return owner, err
}

// view returns the node that has each slot, from a CLUSTER NODES reply.
func (c *Cluster) view(nodes string) (owner [slotCount]int) {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		for _, f := range fields[min(8, len(fields)):] {
			low, high, isRange := strings.Cut(f, "-")
			if !isRange {
				high = low
			}
			first, err := strconv.Atoi(low) // "[" begins slots on their way
			last, err2 := strconv.Atoi(high)
			for slot := first; slot <= last && errors.Join(err, err2) == nil; slot++ {
				owner[slot] = slices.Index(c.ids, fields[0])
			}
		}
	}
	return owner
}

// master returns which node of a pair is the master, and which one is its replica.
func (c *Cluster) master(ctx context.Context, pair int) (master, replica int, err error) {
	owner, err := c.owners(ctx)
	if slices.Contains(owner[:], pair+Masters) {
		return pair + Masters, pair, err
	}
	return pair, pair + Masters, err
}

// Move moves the slot of a key to the next pair, with all its keys. way is how long the slot is on
// its way, at least.
func (c *Cluster) Move(ctx context.Context, key string, way time.Duration) error {
	slot, err := c.Client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return err
	}
	owner, err := c.owners(ctx)
	if err != nil {
		return err
	}
	from := owner[slot]
	to, _, err := c.master(ctx, (from+1)%Masters)
	if err != nil {
		return err
	}
	err = c.OpenSlot(ctx, int(slot), from, to)
	for moved := 1; err == nil && moved > 0; {
		_ = sleep.For(ctx, way)
		moved, err = c.MoveKeys(ctx, int(slot), from, to)
	}
	if err == nil {
		err = c.CloseSlot(ctx, int(slot), from, to)
	}
	if err != nil {
		return fmt.Errorf("move slot %d: %w", slot, err)
	}
	return c.until(ctx, "a slot to arrive", func() bool {
		owner, err := c.owners(ctx)
		return err == nil && owner[slot] == to
	})
}

// OpenSlot tells two masters that a slot is on its way.
func (c *Cluster) OpenSlot(ctx context.Context, slot, from, to int) error {
	return errors.Join(c.do(ctx, to, "cluster", "setslot", slot, "importing", c.ids[from]), c.do(ctx, from, "cluster", "setslot", slot, "migrating", c.ids[to]))
}

// MoveKeys moves up to 100 keys of a slot together, and returns how many these were.
func (c *Cluster) MoveKeys(ctx context.Context, slot, from, to int) (int, error) {
	found, err := c.Nodes[from].Client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
	if err != nil || len(found) == 0 {
		return 0, err
	}
	args := []any{"migrate", "127.0.0.1", c.Nodes[to].Server.Port(), "", 0, 60_000, "replace", "keys"}
	for _, name := range found {
		args = append(args, name)
	}
	return len(found), c.do(ctx, from, args...)
}

// CloseSlot tells two masters that a slot has arrived.
func (c *Cluster) CloseSlot(ctx context.Context, slot, from, to int) error {
	if err := c.do(ctx, to, "cluster", "setslot", slot, "node", c.ids[to]); err != nil {
		return err
	}
	return c.do(ctx, from, "cluster", "setslot", slot, "node", c.ids[to])
}

// FailOver makes the replica of a pair the master. With force, the replica may lack the last writes
// of the old master.
func (c *Cluster) FailOver(ctx context.Context, pair int, force bool) error {
	_, replica, err := c.master(ctx, pair)
	if err != nil {
		return err
	}
	args := []any{"cluster", "failover"}
	if force {
		args = append(args, "force")
	}
	asked := time.Time{}
	return c.until(ctx, "a failover", func() bool {
		if time.Since(asked) > 5*time.Second { // it may lose the election
			asked = time.Now()
			_ = c.do(ctx, replica, args...) // it may be the master by now
		}
		is, _, err := c.master(ctx, pair)
		return err == nil && is == replica
	})
}

// KillMaster kills the master of a pair, waits until its replica has taken over, and brings the old
// master back as its replica, without data.
func (c *Cluster) KillMaster(ctx context.Context, pair int) error {
	master, replica, err := c.master(ctx, pair)
	if err != nil {
		return err
	}
	if err := c.Nodes[master].Server.Kill(); err != nil {
		return err
	}
	err = c.until(ctx, "a replica to take over", func() bool {
		is, _, err := c.master(ctx, pair)
		return err == nil && is == replica
	})
	if err != nil {
		return err
	}
	return c.Nodes[master].Server.Restart(ctx)
}
