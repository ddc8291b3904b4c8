package keyspace

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
)

// A Keyspace applies what is stale to one Redis, Sentinel set or Cluster. It has all parts, on the
// same connections. A service takes the part that it needs. Each part is safe for concurrent use.
type Keyspace struct {
	Nodes        *Nodes
	Shards       *Shards
	Beacons      *Beacons
	Unlinker     *Unlinker
	Publisher    *Publisher
	Sweeper      *Sweeper
	Sets         *Sets
	Subscriber   *Subscriber
	StatusHashes *StatusHashes
	Contents     *Contents
	Entries      *Entries
	Account      *Account
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
		Sets:         &Sets{nodes, shards, beacons, unlinker, share},
		Subscriber:   &Subscriber{nodes},
		StatusHashes: &StatusHashes{nodes, shards, &publisher.alive},
		Contents:     &Contents{nodes, share},
		Entries:      &Entries{nodes, shards},
		Account:      &Account{nodes, o.ShardedPubSub},
	}, nil
}

// Close closes all connections. Calls that are under way, and later ones, end in an *Outage.
// Closing again does nothing.
func (k *Keyspace) Close() error { return k.Nodes.close() }

const (
	defaultTimeout = 200 * time.Millisecond
	minTimeout     = 50 * time.Millisecond
	maxTimeout     = 5 * time.Second

	defaultSweepShare = 0.25
	minSweepShare     = 0.01

	defaultPoolSize = 8
	minPoolSize     = 2
)

// Options configure a Keyspace.
type Options struct {
	// Redis is the address of Redis, the credentials, and TLS. Required; see redisurl. MasterName
	// makes it a Sentinel set, several Addrs or IsClusterMode a Cluster, which has only DB 0;
	// otherwise it is one server. This package controls how commands are sent, so it uses only
	// these fields: Addrs, DB, MasterName, IsClusterMode, those for credentials, TLSConfig, Dialer,
	// OnConnect, Protocol, ClientName and PoolSize.
	//
	// PoolSize is the number of connections, for each node of a Cluster. Zero means 8, the least is
	// 2: clearing a set holds one connection and unlinks on another. A sweep has two more. Each has
	// buffers of 128 KiB.
	Redis *redis.UniversalOptions

	// Timeout bounds each of dialling, writing and reading; a pipeline counts as one command. Zero
	// means 200ms. Less than 50ms would take the fork of a snapshot for an outage; more than 5s
	// would let one command use up the time that the caller has for a whole batch. One retry may
	// double it, and two redirections or retries in Cluster may make it threefold.
	Timeout time.Duration

	// BeaconTTL is how long Redis keeps the beacons, which reveal lost writes: see Survived. It
	// must be longer than the caller keeps its record of unlinked keys. Zero: no beacons are
	// written, and no loss is detected.
	BeaconTTL time.Duration

	// WaitReplicas makes every pipeline of Unlink and Sweep wait until so many replicas of each
	// master it went to have acknowledged it (WAIT), for half of Timeout at most; fewer are an
	// *Outage. It makes a loss less likely, and does not exclude it. 0, the default, to 10; it
	// needs BeaconTTL.
	WaitReplicas int

	// SweepShare is the share of Redis time that Sweep, TakeSet and TakeSets take together, from
	// 0.01 to 1, which means as fast as Redis answers. Zero means 0.25. A short sweep ends before
	// it can be slowed down.
	SweepShare float64

	// ShardedPubSub makes Publish use SPUBLISH, for subscribers that use SSUBSCRIBE (Redis 7): a
	// message then stays in the shard of the channel's slot. While that shard is unavailable no
	// subscriber gets it, which is an *Outage.
	ShardedPubSub bool

	// MessageKey signs messages in the event format. Nil: they are not signed.
	MessageKey protocol.MessageKey
}

// WithDefaults returns a copy with zero fields replaced by defaults.
func (o Options) WithDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.SweepShare = cmp.Or(o.SweepShare, defaultSweepShare)
	if o.Redis != nil && o.Redis.PoolSize == 0 {
		redis := *o.Redis
		redis.PoolSize = defaultPoolSize
		o.Redis = &redis
	}
	return o
}

// Validate checks the fields and how they go together. It expects the defaults to be in place and
// names every field at fault. No error contains a password.
func (o Options) Validate() error {
	var faults []error
	if o.Redis == nil {
		faults = append(faults, errors.New("option Redis is missing"))
	} else {
		faults = append(faults, validate(o.Redis)...)
	}
	if o.Timeout < minTimeout || o.Timeout > maxTimeout {
		faults = append(faults, fmt.Errorf("option Timeout is %v: it must be from %v to %v", o.Timeout, minTimeout, maxTimeout))
	}
	if o.BeaconTTL != 0 && o.BeaconTTL < time.Second {
		faults = append(faults, fmt.Errorf("option BeaconTTL is %v: it must be 0, or 1s or more", o.BeaconTTL))
	}
	switch {
	case o.WaitReplicas < 0 || o.WaitReplicas > maxWaitReplicas:
		faults = append(faults, fmt.Errorf("option WaitReplicas is %d: it must be from 0 to %d", o.WaitReplicas, maxWaitReplicas))
	case o.WaitReplicas > 0 && o.BeaconTTL == 0:
		faults = append(faults, errors.New("option WaitReplicas is set and BeaconTTL is not: WAIT goes with the beacon"))
	}
	if !(o.SweepShare >= minSweepShare && o.SweepShare <= 1) { // NaN is neither
		faults = append(faults, fmt.Errorf("option SweepShare is %v: it must be from %v to 1", o.SweepShare, minSweepShare))
	}
	if o.MessageKey != nil {
		if err := o.MessageKey.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("option MessageKey: %w", err))
		}
	}
	return errors.Join(faults...)
}

func validate(o *redis.UniversalOptions) (faults []error) {
	if len(o.Addrs) == 0 {
		faults = append(faults, errors.New("option Addrs is empty: it must name a host:port"))
	}
	switch {
	case o.DB < 0:
		faults = append(faults, fmt.Errorf("option DB is %d: it must be 0 or more", o.DB))
	case isCluster(o) && o.DB != 0:
		faults = append(faults, fmt.Errorf("option DB is %d: the Redis client uses only database 0 of a Cluster, even with Valkey 9", o.DB))
	}
	if o.PoolSize < minPoolSize {
		faults = append(faults, fmt.Errorf("option PoolSize is %d: it must be %d or more", o.PoolSize, minPoolSize))
	}
	return faults
}

// Redacted returns where the options lead, as a URL that is fit for a log: passwords are masked. It
// expects options that Validate accepts.
func (o Options) Redacted() string { return redisurl.Redacted(o.Redis) }

// isCluster reports whether options lead to a Redis Cluster.
func isCluster(o *redis.UniversalOptions) bool {
	return o.MasterName == "" && (o.IsClusterMode || len(o.Addrs) > 1)
}

// Settings of all three clients: one retry, one dial, and at connect only HELLO and SELECT, since a
// user of least privilege may lack CLIENT.
const (
	maxRetries    = 1
	dialerRetries = 1
	// maxRedirects bounds a Cluster's retries and redirections together: one MOVED and one ASK
	// during a slot migration, or one of them and a retry.
	maxRedirects = 2
	// onePool turns off the second pool, of large buffers, that go-redis keeps for pipelines: here
	// nearly everything is one, so the only pool has them.
	onePool    = -1
	bufferSize = 64 << 10
)

// universal returns the options of the client library: address and credentials from Redis, and the
// rest from this package.
func (o Options) universal() *redis.UniversalOptions {
	r := o.Redis
	u := &redis.UniversalOptions{
		Addrs: r.Addrs, DB: r.DB, MasterName: r.MasterName, IsClusterMode: r.IsClusterMode,
		Username: r.Username, Password: r.Password, SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword,
		CredentialsProvider: r.CredentialsProvider, CredentialsProviderContext: r.CredentialsProviderContext,
		StreamingCredentialsProvider: r.StreamingCredentialsProvider,
		ClientName:                   r.ClientName, Protocol: r.Protocol, OnConnect: r.OnConnect,
		TLSConfig: r.TLSConfig, Dialer: dialer(o.Timeout, r.Dialer, r.TLSConfig),
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            maxRetries, MaxRedirects: maxRedirects, DialerRetries: dialerRetries,
		PoolSize: r.PoolSize, PipelinePoolSize: onePool,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if isCluster(r) {
		u.MaxRetries = 0 // of a node's own client; MaxRedirects bounds all
	}
	return u
}

// client builds the client without dialling.
func (o Options) client() redis.UniversalClient {
	u := o.universal()
	switch {
	case isCluster(u):
		c := redis.NewClusterClient(u.Cluster())
		c.OnNewNode(func(node *redis.Client) { explainDenials(node) })
		return c
	case u.MasterName != "":
		return explainDenials(redis.NewFailoverClient(u.Failover()))
	}
	return explainDenials(redis.NewClient(u.Simple()))
}

// explainDenials adds a hook to a client, which explains what is missing: see denials.
func explainDenials(c *redis.Client) *redis.Client {
	c.AddHook(denials{})
	return c
}
