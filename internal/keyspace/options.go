package keyspace

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	defaultTimeout = 200 * time.Millisecond
	minTimeout     = 50 * time.Millisecond
	maxTimeout     = 5 * time.Second

	defaultSweepShare = 0.25
	minSweepShare     = 0.01

	defaultPoolSize = 8
	minPoolSize     = 2
)

// Options say which Redis a Keyspace works on, and how.
type Options struct {
	// Redis says where Redis is, as whom to log in, and whether to use TLS. Required; see ParseURL. MasterName makes it
	// a Sentinel set, several Addrs or IsClusterMode a Cluster, which has only DB 0; else it is one server. How
	// commands are sent is for this package to say: of its fields Addrs, DB, MasterName, IsClusterMode, those about
	// credentials, TLSConfig, Dialer, OnConnect, Protocol, ClientName and PoolSize are used and no others.
	//
	// PoolSize is the number of connections, for each node of a Cluster. Zero means 8, the least is 2: taking a set
	// apart holds one connection and unlinks on another. A sweep has two more of its own. Each has buffers of 128 KiB.
	Redis *redis.UniversalOptions

	// Timeout bounds each of dialling, writing and reading; a pipeline counts as one command. Zero means 200ms. Less
	// than 50ms would take the fork of a snapshot for an outage; more than 5s would let one command use up the time
	// that the caller has for a whole batch. One retry may double it, and two redirections or retries in Cluster may
	// make it threefold.
	Timeout time.Duration

	// BeaconTTL is how long Redis keeps the beacons that tell whether it lost what it had acknowledged: see Survived.
	// It must exceed the time for which the caller remembers what it unlinked. Zero: no beacons are written, and no
	// loss is noticed.
	BeaconTTL time.Duration

	// WaitReplicas makes every pipeline of Unlink and Sweep wait until so many replicas of each master it went to have
	// acknowledged it (WAIT), for half of Timeout at most; fewer are an *Outage. It makes a loss less likely, and does
	// not exclude it. 0, the default, to 10; it needs BeaconTTL.
	WaitReplicas int

	// SweepShare is the share of Redis' time that Sweep, TakeSet and TakeSets may take together, from 0.01 to 1, which
	// means all of it: as fast as Redis answers. Zero means 0.25. A short sweep is over before it can be slowed down.
	SweepShare float64

	// ShardedPubSub makes Publish use SPUBLISH, for subscribers that use SSUBSCRIBE (Redis 7): a message then goes to
	// the shard that has the channel's slot and no further. While that shard is away nobody is told, which is an
	// *Outage.
	ShardedPubSub bool
}

// WithDefaults returns a copy in which every zero field has its default.
func (o Options) WithDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.SweepShare == 0 {
		o.SweepShare = defaultSweepShare
	}
	if o.Redis != nil && o.Redis.PoolSize == 0 {
		redis := *o.Redis
		redis.PoolSize = defaultPoolSize
		o.Redis = &redis
	}
	return o
}

// Validate checks the fields and how they go together. It expects the defaults to be in place and names every field at
// fault. No error contains a password.
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
	return errors.Join(faults...)
}

func validate(o *redis.UniversalOptions) (faults []error) {
	if len(o.Addrs) == 0 {
		faults = append(faults, errors.New("option Addrs is empty: it must name a host:port"))
	}
	switch {
	case o.DB < 0:
		faults = append(faults, fmt.Errorf("option DB is %d: it must be 0 or more", o.DB))
	case kindOf(o) == cluster && o.DB != 0:
		faults = append(faults, fmt.Errorf("option DB is %d: Redis Cluster has only database 0", o.DB))
	}
	if o.PoolSize < minPoolSize {
		faults = append(faults, fmt.Errorf("option PoolSize is %d: it must be %d or more", o.PoolSize, minPoolSize))
	}
	return faults
}

// Redacted is where the options lead, as a URL that is fit for a log: passwords are masked. It expects options that
// Validate accepts.
func (o Options) Redacted() string { return redacted(o.Redis) }

// kindOf is the kind of deployment that options lead to.
func kindOf(o *redis.UniversalOptions) kind {
	switch {
	case o.MasterName != "":
		return sentinel
	case o.IsClusterMode || len(o.Addrs) > 1:
		return cluster
	}
	return single
}

// What all three clients share: one retry, one dial, and no command at connect beyond HELLO and SELECT, since a user of
// least privilege may lack CLIENT.
const (
	maxRetries    = 1
	dialerRetries = 1
	// maxRedirects bounds a Cluster's retries and redirections together: one MOVED and one ASK during a slot migration,
	// or one of them and a retry.
	maxRedirects = 2
	// onePool turns off the second pool, of large buffers, that go-redis keeps for pipelines: here nearly everything is
	// one, so the only pool has them.
	onePool    = -1
	bufferSize = 64 << 10
)

// universal are the client library's options: those of Redis that say where and as whom, and ours for the rest.
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
	if kindOf(r) == cluster {
		u.MaxRetries = 0 // of a node's own client; MaxRedirects bounds all
	}
	return u
}

// client builds the client without dialling.
func (o Options) client() redis.UniversalClient {
	u := o.universal()
	switch kindOf(u) {
	case cluster:
		c := redis.NewClusterClient(u.Cluster())
		c.OnNewNode(func(node *redis.Client) { node.AddHook(denials{}) })
		return c
	case sentinel:
		c := redis.NewFailoverClient(u.Failover())
		c.AddHook(denials{})
		return c
	default:
		c := redis.NewClient(u.Simple())
		c.AddHook(denials{})
		return c
	}
}
