package verifylocks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// killZooKeeper kills the leader, so that a new one is elected, or another server.
func killZooKeeper(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	n, err := t.server(ctx)
	if err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, 0, t.crowd.spec.TTL))
	return n.Restart(ctx)
}

// freezeZooKeeper stops the leader or another server. When a leader continues, it may expire
// sessions although their holders were running.
func freezeZooKeeper(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	n, err := t.server(ctx)
	if err != nil {
		return err
	}
	if err := n.Pause(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, t.crowd.spec.TTL/3, 3*t.crowd.spec.TTL))
	return n.Resume()
}

// server draws the leader, or with the same odds one that follows.
func (t *turn) server(ctx context.Context) (*servers.ZooKeeperNode, error) {
	leads, follower := t.dice.IntN(2) == 0, t.dice.IntN(2)
	for ; ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
		leader, err := t.stage.ensemble.Leader(ctx)
		switch {
		case err != nil: // they elect one
		case leads:
			return leader, nil
		default:
			others := slices.DeleteFunc(slices.Clone(t.stage.ensemble.Nodes), func(n *servers.ZooKeeperNode) bool { return n == leader })
			return others[follower], nil
		}
	}
	return nil, fmt.Errorf("wait for a leader of ZooKeeper: %w", ctx.Err())
}

// expireSessions cuts the first holder off: what is sent goes nowhere, for longer than the servers
// wait for it.
func expireSessions(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	for _, link := range t.stage.toEnsemble {
		if err := link.Swallow(); err != nil {
			return err
		}
	}
	session := 3 * t.crowd.spec.TTL / 2 // of package lock
	sleep(ctx, rig.Between(t.dice, session, 2*session))
	for _, link := range t.stage.toEnsemble {
		if err := link.Heal(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removeNodes removes the first node of locks, which belongs to the holder.
func removeNodes(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 100*time.Millisecond, 400*time.Millisecond))
	conn, _, err := zk.Connect(t.stage.ensemble.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)() // calls of the library take no context
	for i, l := range lanes {
		if l.backend != zookeeper {
			continue
		}
		for n := range l.names + 1 {
			if l.guarded && n > 0 && t.dice.IntN(4) > 0 { // of many locks some, or it takes long
				continue
			}
			if err := removeFirst(conn, "/unstale/locks/"+lockName(t.counter(i)+n)); err != nil {
				return fmt.Errorf("remove a node: %w", err)
			}
		}
	}
	return ctx.Err()
}

// removeFirst removes the node of a lock with the lowest number, if the lock has any.
func removeFirst(conn *zk.Conn, dir string) error {
	nodes, _, err := conn.Children(dir)
	if len(nodes) > 0 && err == nil {
		number := func(node string) string { return node[len(node)-10:] }
		first := slices.MinFunc(nodes, func(a, b string) int { return strings.Compare(number(a), number(b)) })
		err = conn.Delete(dir+"/"+first, -1)
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrConnectionClosed) { // there are others
		return nil
	}
	return err
}
