package keyspace

import (
	"fmt"
)

// A Keyspace applies what is stale to one Redis, Sentinel set or Cluster. It has all parts, on the
// same connections. A service takes the part that it needs. Each part is safe for concurrent use.
type Keyspace struct {
	Nodes      *Nodes
	Shards     *Shards
	Beacons    *Beacons
	Unlinker   *Unlinker
	Publisher  *Publisher
	Sweeper    *Sweeper
	Sets       *Sets
	Subscriber *Subscriber
	Board      *Board
	Contents   *Contents
	Entries    *Entries
	Account    *Account
}

// Open returns a Keyspace with defaults applied to options. It does not dial: an unavailable Redis
// shows at the first call, as an *Outage. The error names every invalid option.
func Open(o Options) (*Keyspace, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open keyspace: %w", err)
	}
	nodes := newNodes(o)
	shards := &Shards{nodes: nodes, life: awayLife + 3*o.Timeout}
	writer := func() beaconWriter {
		return beaconWriter{ttl: o.BeaconTTL, wait: waitOption{o.WaitReplicas, o.Timeout / 2}}
	}
	beacons := &Beacons{nodes: nodes, shards: shards, unlinks: writer(), sweeps: writer()}
	unlinker := &Unlinker{nodes, shards, beacons}
	share := &budget{share: o.SweepShare}
	publisher := &Publisher{nodes: nodes, shards: shards, sharded: o.ShardedPubSub, messageKey: o.MessageKey}
	return &Keyspace{
		Nodes: nodes, Shards: shards, Beacons: beacons, Unlinker: unlinker, Publisher: publisher,
		Sweeper: &Sweeper{
			nodes: nodes, beacons: beacons, unlinker: unlinker, budget: share,
			failsOver: o.Redis.MasterName != "", watchEvery: progressInterval, patience: failoverPatience,
		},
		Sets:       &Sets{nodes, shards, beacons, unlinker, share},
		Subscriber: &Subscriber{nodes},
		Board:      &Board{nodes, shards, &publisher.alive},
		Contents:   &Contents{nodes, share},
		Entries:    &Entries{nodes, shards},
		Account:    &Account{nodes, o.ShardedPubSub},
	}, nil
}

// Close closes all connections. Calls that are under way, and later ones, end in an *Outage.
// Closing again does nothing.
func (k *Keyspace) Close() error { return k.Nodes.close() }
