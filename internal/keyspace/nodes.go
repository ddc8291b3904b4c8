package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Nodes are the servers: one Redis, the master behind Sentinel, or the masters of a Cluster.
type Nodes struct {
	client redis.UniversalClient
	// cluster is the same client where it is a Cluster's, and nil otherwise.
	cluster *redis.ClusterClient

	close func() error // all connections; again it does nothing

	late    lateAnswer
	clock   clock
	doubted atomic.Bool // an outage happened since Shards last listed the masters
}

func newNodes(o Options) *Nodes {
	n := &Nodes{client: o.client()}
	n.cluster, _ = n.client.(*redis.ClusterClient)
	if n.cluster == nil {
		patient := o
		patient.Timeout = max(o.Timeout, latePatience)
		n.late.life = lateLife + patient.Timeout + 3*o.Timeout
		n.late.connect = func() redis.UniversalClient { return patient.client() }
	}
	n.close = sync.OnceValue(func() error {
		n.late.close()
		if err := n.client.Close(); err != nil {
			return fmt.Errorf("close keyspace: %w", err)
		}
		return nil
	})
	return n
}

// Client returns the client of the Keyspace, for commands that it does not provide. Close closes
// it.
func (n *Nodes) Client() redis.UniversalClient { return n.client }

// Ping checks that Redis, and in Cluster every master, answers. The error is an *Outage.
func (n *Nodes) Ping(ctx context.Context) error {
	return n.EachMaster(ctx, func(m *redis.Client) error { return n.outageOrNil(ctx, m.Ping(ctx).Err()) })
}

// masters returns the clients of the masters, ordered by address.
func (n *Nodes) masters(ctx context.Context) ([]*redis.Client, error) {
	if n.cluster == nil {
		return []*redis.Client{n.client.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	var masters []*redis.Client
	err := n.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, c)
		return nil
	})
	if err != nil {
		return nil, n.outage(ctx, err)
	}
	slices.SortFunc(masters, func(a, b *redis.Client) int {
		return cmp.Compare(a.Options().Addr, b.Options().Addr)
	})
	return masters, nil
}

// master returns the client of the master that key belongs to.
func (n *Nodes) master(ctx context.Context, key string) (*redis.Client, error) {
	if n.cluster == nil {
		return n.client.(*redis.Client), nil
	}
	c, err := n.cluster.MasterForKey(ctx, key)
	return c, n.outageOrNil(ctx, err)
}

// outage returns an *Outage for err. In a Cluster it also requests a refresh of the nodes, since
// the client alone refreshes only once a minute: another node may have replaced the master.
func (n *Nodes) outage(ctx context.Context, err error) *Outage {
	o := outage(err)
	switch {
	case n.cluster != nil:
		n.cluster.ReloadState(ctx)
		n.doubted.Store(true)
	case o.State == StateMoving: // a node redirects that should not
		o.State = StateWrongMode
	}
	return n.late.explain(o)
}

// outageOrLoss makes an *Outage of err unless it is a *Loss.
func (n *Nodes) outageOrLoss(ctx context.Context, err error) error {
	if loss, ok := errors.AsType[*Loss](err); ok {
		return loss
	}
	return n.outage(ctx, err)
}

// outageOrNil returns an *Outage for err unless it is nil.
func (n *Nodes) outageOrNil(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return n.outage(ctx, err)
}

// exec sends commands in one pipeline. It returns an error only if no command has one: go-redis
// leaves the commands without an error when the server refuses the connection itself, for example
// with WRONGPASS. If the deadline of the caller leaves no time to answer, nothing is sent.
func (n *Nodes) exec(ctx context.Context, on redis.UniversalClient, commands []redis.Cmder) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < leastTime {
		return n.outage(ctx, fmt.Errorf("%w: %w", errNoTime, context.DeadlineExceeded))
	}
	pipe := on.Pipeline()
	for _, c := range commands {
		_ = pipe.Process(ctx, c) // only queues, and cannot fail
	}
	_, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return n.outage(ctx, err)
}

// PingMasters pings all masters in parallel, and returns the result of each by its address: nil, or
// an *Outage. The error is an *Outage too: the masters are unknown.
func (n *Nodes) PingMasters(ctx context.Context) (map[string]error, error) {
	masters, err := n.masters(ctx)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]error, len(masters))
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range masters {
		all.Go(func() {
			err := n.outageOrNil(ctx, m.Ping(ctx).Err())
			mu.Lock()
			defer mu.Unlock()
			answers[m.Options().Addr] = err
		})
	}
	all.Wait()
	return answers, nil
}

// EachMaster calls look with a client of each master, ordered by address, until it returns an
// error.
func (n *Nodes) EachMaster(ctx context.Context, look func(*redis.Client) error) error {
	masters, err := n.masters(ctx)
	if err != nil {
		return err
	}
	for _, m := range masters {
		if err := look(m); err != nil {
			return err
		}
	}
	return nil
}

// IsCluster reports whether it is a Redis Cluster's.
func (n *Nodes) IsCluster() bool { return n.cluster != nil }

// DB returns the number of the database.
func (n *Nodes) DB() int {
	if c, ok := n.client.(*redis.Client); ok {
		return c.Options().DB
	}
	return 0
}

// firstError returns the first error of commands, or nil.
func firstError(commands []redis.Cmder) error {
	for _, c := range commands {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}
