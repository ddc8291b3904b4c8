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

	"github.com/unstale/unstale/protocol"
)

// A Keyspace applies what is stale to one Redis, Sentinel set or Cluster. It is safe for concurrent use.
type Keyspace struct {
	client redis.UniversalClient
	// cluster is the same client where it is a Cluster's, and nil otherwise.
	cluster *redis.ClusterClient

	closeOnce sync.Once
	closeErr  error

	failsOver  bool         // Sentinel says where the master is
	sweepShare float64      // of Redis' time, for sweeps
	sweeping   atomic.Int32 // calls of Sweep, TakeSet and TakeSets that are under way
	watchEvery time.Duration
	patience   time.Duration // of a sweep, for a failover

	sharded    bool // Pub/Sub
	shards     shards
	receivers  atomic.Int64                  // of the last message
	publishers sync.Map                      // a *publisher for each channel
	mark       atomic.Pointer[protocol.Beat] // of first messages, nil unless heartbeats are sent
	alive      atomic.Bool                   // the latest Board.Alive succeeded; heartbeats say so
	late       lateAnswer
	clock      clock

	// The beacons of Unlink, and of Sweep, TakeSet and TakeSets.
	unlinks, sweeps beaconWriter
}

// Open makes a Keyspace of options, to which defaults are applied. It does not dial: a Redis that is away shows at the
// first call, as an *Outage. The error names every option at fault.
func Open(o Options) (*Keyspace, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open keyspace: %w", err)
	}
	k := &Keyspace{client: o.client(), failsOver: kindOf(o.Redis) == sentinel, sharded: o.ShardedPubSub, sweepShare: o.SweepShare, watchEvery: progressInterval, patience: failoverPatience}
	k.shards.life = awayLife + 3*o.Timeout
	wait := waitOption{o.WaitReplicas, o.Timeout / 2}
	k.unlinks = beaconWriter{ttl: o.BeaconTTL, wait: wait}
	k.sweeps = beaconWriter{ttl: o.BeaconTTL, wait: wait}
	k.cluster, _ = k.client.(*redis.ClusterClient)
	if k.cluster == nil {
		patient := o
		patient.Timeout = max(o.Timeout, latePatience)
		k.late.life = lateLife + patient.Timeout + 3*o.Timeout
		k.late.connect = func() redis.UniversalClient { return patient.client() }
	}
	return k, nil
}

// Close closes all connections. Calls that are under way, and later ones, end in an *Outage. Closing again does
// nothing.
func (k *Keyspace) Close() error {
	k.closeOnce.Do(func() {
		k.late.close()
		if err := k.client.Close(); err != nil {
			k.closeErr = fmt.Errorf("close keyspace: %w", err)
		}
	})
	return k.closeErr
}

// Client is the client that the Keyspace works with, for what it does not do itself. It goes with Close.
func (k *Keyspace) Client() redis.UniversalClient { return k.client }

// Ping checks that Redis, and in Cluster every master, answers. The error is an *Outage.
func (k *Keyspace) Ping(ctx context.Context) error {
	masters, err := k.masters(ctx)
	if err != nil {
		return err
	}
	for _, m := range masters {
		if err := m.Ping(ctx).Err(); err != nil {
			return k.outage(ctx, err)
		}
	}
	return nil
}

// masters are the clients of the masters, ordered by address.
func (k *Keyspace) masters(ctx context.Context) ([]*redis.Client, error) {
	if k.cluster == nil {
		return []*redis.Client{k.client.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	var masters []*redis.Client
	err := k.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, c)
		return nil
	})
	if err != nil {
		return nil, k.outage(ctx, err)
	}
	slices.SortFunc(masters, func(a, b *redis.Client) int {
		return cmp.Compare(a.Options().Addr, b.Options().Addr)
	})
	return masters, nil
}

// master is the client of the master that key belongs to.
func (k *Keyspace) master(ctx context.Context, key string) (*redis.Client, error) {
	if k.cluster == nil {
		return k.client.(*redis.Client), nil
	}
	c, err := k.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, k.outage(ctx, err)
	}
	return c, nil
}

// outage makes an *Outage of err. In Cluster it also asks for a fresh look at the nodes, since the client by itself
// looks only once a minute: the outage may be a master that another one has replaced.
func (k *Keyspace) outage(ctx context.Context, err error) *Outage {
	o := outage(err)
	switch {
	case k.cluster != nil:
		k.cluster.ReloadState(ctx)
		k.shards.mu.Lock()
		k.shards.read = time.Time{}
		k.shards.mu.Unlock()
	case o.State == StateMoving: // somebody redirects who should not
		o.State = StateWrongMode
	}
	return k.late.explain(o)
}

// outageOrLoss makes an *Outage of err unless it is a *Loss.
func (k *Keyspace) outageOrLoss(ctx context.Context, err error) error {
	var loss *Loss
	if errors.As(err, &loss) {
		return loss
	}
	return k.outage(ctx, err)
}

// exec sends commands in one pipeline. It returns an error only where no command carries one: go-redis leaves the
// commands without an error when the server refuses the connection itself, by WRONGPASS for example. Where the caller's
// deadline leaves no time to answer, nothing is sent.
func (k *Keyspace) exec(ctx context.Context, on redis.UniversalClient, commands []redis.Cmder) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < leastTime {
		return k.outage(ctx, fmt.Errorf("%w: %w", errNoTime, context.DeadlineExceeded))
	}
	pipe := on.Pipeline()
	for _, c := range commands {
		_ = pipe.Process(ctx, c) // only queues, and cannot fail
	}
	_, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return k.outage(ctx, err)
}

// PingMasters asks all masters at once, and returns what each has answered by its address: nil, or an *Outage. The error is an
// *Outage too: nobody knows which masters there are.
func (k *Keyspace) PingMasters(ctx context.Context) (map[string]error, error) {
	masters, err := k.masters(ctx)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]error, len(masters))
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range masters {
		all.Go(func() {
			err := m.Ping(ctx).Err()
			if err != nil {
				err = k.outage(ctx, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.Options().Addr] = err
		})
	}
	all.Wait()
	return answers, nil
}

// EachMaster calls look with a client of each master, ordered by address, until it returns an error.
func (k *Keyspace) EachMaster(ctx context.Context, look func(*redis.Client) error) error {
	masters, err := k.masters(ctx)
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
func (k *Keyspace) IsCluster() bool { return k.cluster != nil }

// DB is the number of the database.
func (k *Keyspace) DB() int {
	if c, ok := k.client.(*redis.Client); ok {
		return c.Options().DB
	}
	return 0
}
