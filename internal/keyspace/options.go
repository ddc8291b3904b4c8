package keyspace

import (
	"crypto/tls"
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
	// URL says where Redis is. Required. One of
	//
	//	redis://user:password@host:port/db
	//	redis+cluster://user:password@host:port,host:port
	//	redis+sentinel://user:password@host:port,host:port/master/db
	//	redis+sentinel://user:password@host:port,host:port/db?master=name
	//
	// and the same with rediss for TLS. Ports default to 6379, those of
	// sentinels to 26379. Query options: db; skip_verify=true (TLS without
	// checking the certificate); for Sentinel master, sentinel_username and
	// sentinel_password. Any other option is refused.
	URL string

	// TLS turns TLS on whatever the URL's scheme is. False leaves it to the URL.
	TLS bool

	// TLSConfig serves private authorities and client certificates. Setting it
	// turns TLS on. Nil means the system's authorities and TLS 1.2 or newer.
	TLSConfig *tls.Config

	// DB is the number of the database, and beats the URL's. Nil leaves it to
	// the URL. Cluster has only number 0.
	DB *int

	// Timeout bounds each of dialling, writing and reading; a pipeline counts
	// as one command. Zero means 200ms. Less than 50ms would take the fork of
	// a snapshot for an outage; more than 5s would let one command use up the
	// time that the caller has for a whole batch. One retry may double it, and
	// two redirections or retries in Cluster may make it threefold.
	Timeout time.Duration

	// BeaconTTL is how long Redis keeps the beacons that tell whether it lost
	// what it had acknowledged: see Survived. It must exceed the time for which
	// the caller remembers what it unlinked. Zero: no beacons are written, and
	// no loss is noticed.
	BeaconTTL time.Duration

	// WaitReplicas makes every pipeline of Unlink and Sweep wait until so many
	// replicas of each master it went to have acknowledged it (WAIT), for half
	// of Timeout at most; fewer are an *Outage. It makes a loss less likely,
	// and doesn't exclude it. 0, the default, to 10; it needs BeaconTTL.
	WaitReplicas int

	// SweepShare is the share of Redis' time that Sweep, TakeSet and TakeSets may
	// take together, from
	// 0.01 to 1, which means all of it: as fast as Redis answers. Zero means
	// 0.25. A short pass is over before it can be slowed down.
	SweepShare float64

	// ShardedPubSub makes Publish use SPUBLISH, for subscribers that use
	// SSUBSCRIBE (Redis 7): a message then goes to the shard that has the
	// channel's slot and no further. While that shard is away nobody is told,
	// which is an *Outage.
	ShardedPubSub bool

	// PoolSize is the number of connections, for each node of a Cluster. Zero
	// means 8, the least is 2: taking a set apart holds one connection and
	// unlinks on another. A sweep has two more of its own. Each has buffers of 128 KiB.
	PoolSize int
}

// WithDefaults returns a copy in which every zero field has its default.
func (o Options) WithDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.SweepShare == 0 {
		o.SweepShare = defaultSweepShare
	}
	if o.PoolSize == 0 {
		o.PoolSize = defaultPoolSize
	}
	return o
}

// Validate checks the fields and how they go together. It expects the
// defaults to be in place and names every field at fault. No error contains
// a password.
func (o Options) Validate() error {
	var faults []error
	if _, err := o.address(); err != nil {
		faults = append(faults, err)
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
		faults = append(faults, errors.New("option WaitReplicas is set and BeaconTTL isn't: WAIT goes with the beacon"))
	}
	if !(o.SweepShare >= minSweepShare && o.SweepShare <= 1) { // NaN is neither
		faults = append(faults, fmt.Errorf("option SweepShare is %v: it must be from %v to 1", o.SweepShare, minSweepShare))
	}
	if o.PoolSize < minPoolSize {
		faults = append(faults, fmt.Errorf("option PoolSize is %d: it must be %d or more", o.PoolSize, minPoolSize))
	}
	return errors.Join(faults...)
}

// Redacted is the address that the options lead to, fit for a log: passwords
// are masked, and what TLS and DB change is in it. A URL that can't be read
// isn't shown at all, since a password may be anywhere in it.
func (o Options) Redacted() string {
	a, err := o.address()
	if err != nil {
		return "(unreadable redis url)"
	}
	return a.redacted()
}

// Database is the number of the database that the options lead to: DB, or else
// the URL's, or else 0. It expects options that Validate accepts.
func (o Options) Database() int {
	a, _ := o.address() // a fault is Validate's to tell
	return a.db
}

// address reads the URL and lets the other fields change it.
func (o Options) address() (address, error) {
	a, err := parseURL(o.URL)
	if err != nil {
		return address{}, fmt.Errorf("option URL: %w", err)
	}
	if o.TLS || o.TLSConfig != nil {
		a.tls = true
	}
	if a.skipVerify && !a.tls {
		return address{}, errors.New("option URL: skip_verify is set but TLS is off")
	}
	if o.DB != nil {
		a.db = *o.DB
	}
	if a.db < 0 {
		return address{}, fmt.Errorf("option DB is %d: it must be 0 or more", a.db)
	}
	if a.kind == cluster && a.db != 0 {
		return address{}, fmt.Errorf("option DB is %d: Redis Cluster has only database 0", a.db)
	}
	return a, nil
}

// tlsConfig is nil when TLS is off. The server's name is left to each dial,
// since the nodes of a Cluster have names of their own.
func (o Options) tlsConfig(a address) *tls.Config {
	if !a.tls {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLSConfig != nil {
		c = o.TLSConfig.Clone()
	}
	if a.skipVerify {
		c.InsecureSkipVerify = true
	}
	return c
}

// What all three clients share: one retry, one dial, and no command at
// connect beyond HELLO and SELECT, since a user of least privilege may lack
// CLIENT.
const (
	maxRetries    = 1
	dialerRetries = 1
	// maxRedirects bounds a Cluster's retries and redirections together: one
	// MOVED and one ASK during a slot migration, or one of them and a retry.
	maxRedirects = 2
	// onePool turns off the second pool, of large buffers, that go-redis keeps
	// for pipelines: here nearly everything is one, so the only pool has them.
	onePool    = -1
	bufferSize = 64 << 10
)

// client builds the client without dialling.
func (o Options) client(a address) redis.UniversalClient {
	switch a.kind {
	case cluster:
		c := o.clusterClient(a)
		c.OnNewNode(func(node *redis.Client) { node.AddHook(denials{}) })
		return c
	case sentinel:
		c := o.sentinelClient(a)
		c.AddHook(denials{})
		return c
	default:
		c := o.singleClient(a)
		c.AddHook(denials{})
		return c
	}
}

func (o Options) singleClient(a address) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: a.hosts[0], Username: a.username, Password: a.password, DB: a.db,
		TLSConfig: o.tlsConfig(a), Dialer: dialer(o.Timeout, o.tlsConfig(a)),
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            maxRetries, DialerRetries: dialerRetries,
		PoolSize: o.PoolSize, PipelinePoolSize: onePool,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (o Options) clusterClient(a address) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: a.hosts, Username: a.username, Password: a.password,
		TLSConfig: o.tlsConfig(a), Dialer: dialer(o.Timeout, o.tlsConfig(a)),
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		MaxRedirects:          maxRedirects, DialerRetries: dialerRetries,
		PoolSize: o.PoolSize, PipelinePoolSize: onePool,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (o Options) sentinelClient(a address) *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: a.master, SentinelAddrs: a.hosts,
		SentinelUsername: a.sentinelUsername, SentinelPassword: a.sentinelPassword,
		Username: a.username, Password: a.password, DB: a.db,
		TLSConfig: o.tlsConfig(a), Dialer: dialer(o.Timeout, o.tlsConfig(a)),
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            maxRetries, DialerRetries: dialerRetries,
		PoolSize: o.PoolSize, PipelinePoolSize: onePool,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		DisableIdentity: true,
	})
}
