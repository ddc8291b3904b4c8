package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is what a Cache is made of. Only Redis is usually given.
type Config struct {
	// Redis is where values are shared: one server, Sentinel or Cluster, read at its masters. The Cache does not close
	// it. Give it ContextTimeoutEnabled, which spares a goroutine per command. A Ring and a client that reads from
	// replicas are refused, since both may answer with what was unlinked. Nil: every call loads, and callers of one
	// process share loads.
	Redis redis.UniversalClient

	// Prefix is put before every key, such as "zahraah:prod:". Tags have none: they are as in the map.
	Prefix string

	// Codec turns values into bytes. Nil: JSON.
	Codec Codec

	// CompressAbove compresses values of more bytes than this with gzip, where that makes them shorter: 1024 is a good
	// number. Readers understand both forms whatever their setting, so that it may be changed at any time. It excludes
	// Plain. Zero: none is compressed.
	CompressAbove int

	// Plain stores the bare value of the codec instead of an entry, for readers that know no entries. It refuses
	// policies that ask for tags, a stale time, sliding or negative results, and ignores what those have by default.
	Plain bool

	// Policy is for calls that give none. Nil: Moderate.
	Policy *Policy

	// Jitter is by how much a TTL varies at most, either way: 0.1 to 0.2. Zero: 0.15.
	Jitter float64

	// Lease is how long a load may take before its result is not stored any more. It must not exceed the map's lease,
	// which settling passes wait for. Zero: 10 s.
	Lease time.Duration

	// HardTimeout ends a load, below Lease. The loader's context ends then, and callers get ErrLoadTimeout whatever the
	// loader does. Zero: 80 % of Lease.
	HardTimeout time.Duration

	// SoftTimeout is how long a caller waits for a load where a value within StaleOnError could be given out instead.
	// The load goes on. Zero: HardTimeout.
	SoftTimeout time.Duration

	// Timeout bounds each command or pipeline of Redis, with all its retries: 10 ms to 5 s. Zero: 100 ms.
	Timeout time.Duration

	// Failures is how many commands in a row must fail before none is sent for Pause. Zero: 5.
	Failures uint32

	// Pause is for how long no command is sent then. One command tries afterwards. Zero: 1 s.
	Pause time.Duration

	// Loads is how many loaders run at once in this process; others wait, within HardTimeout. Zero: 256.
	Loads int

	// Memory keeps values in this process too. Its zero value does not.
	Memory Memory

	// Hooks watch what the Cache does, for tracing.
	Hooks Hooks

	// Logger hears of outages and of memory that closes. Nil: slog.Default().
	Logger *slog.Logger
}

// Memory configures the values that this process keeps in its own memory.
//
// They are given out only while the workers can be heard, so that no invalidation is missed: see Cache.Healthy.
type Memory struct {
	// Size is how many values are kept at most. Zero: none, and nothing is subscribed to.
	Size int

	// TTL bounds how long one is kept, whatever its policy. Zero: 60 s.
	TTL time.Duration

	// Channel is the map's publish channel. Where workers move to another one it is listened to as well. Zero:
	// "cache:invalidate".
	Channel string

	// Sources are the outboxes whose workers must be heard, as their heartbeats name them: see outbox.Source. Required,
	// unless MaxStaleness is set.
	Sources []string

	// Period is how often a worker sends heartbeats. Zero: 1 s.
	Period time.Duration

	// MaxStaleness gives out values without heartbeats, as long as the subscription stands: each is kept no longer
	// than this, and may be that old after an invalidation that was not heard. Zero: not accepted.
	MaxStaleness time.Duration
}

// WithDefaults returns a copy with every zero replaced that has a default.
func (c Config) WithDefaults() Config {
	orDuration := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	if c.Codec == nil {
		c.Codec = JSON
	}
	if c.Policy == nil {
		c.Policy = Moderate
	}
	if c.Jitter == 0 {
		c.Jitter = 0.15
	}
	orDuration(&c.Lease, 10*time.Second)
	orDuration(&c.HardTimeout, c.Lease*8/10)
	orDuration(&c.SoftTimeout, c.HardTimeout)
	orDuration(&c.Timeout, 100*time.Millisecond)
	orDuration(&c.Pause, time.Second)
	if c.Failures == 0 {
		c.Failures = 5
	}
	if c.Loads == 0 {
		c.Loads = 256
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Memory.Channel == "" {
		c.Memory.Channel = "cache:invalidate"
	}
	orDuration(&c.Memory.TTL, time.Minute)
	orDuration(&c.Memory.Period, time.Second)
	return c
}

// Validate names every field at fault. It expects defaults to be applied.
func (c Config) Validate() error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	between := func(name string, d, least, most time.Duration) {
		if d < least || d > most {
			refuse("%s is %v, wanted %v to %v", name, d, least, most)
		}
	}
	if c.Jitter < 0.1 || c.Jitter > 0.2 {
		refuse("Jitter is %v, wanted 0.1 to 0.2", c.Jitter)
	}
	between("Lease", c.Lease, 10*time.Millisecond, time.Hour)
	between("HardTimeout", c.HardTimeout, time.Millisecond, c.Lease-1)
	between("SoftTimeout", c.SoftTimeout, time.Millisecond, c.HardTimeout)
	between("Timeout", c.Timeout, 10*time.Millisecond, 5*time.Second)
	between("Pause", c.Pause, time.Millisecond, time.Minute)
	if c.Loads < 1 {
		refuse("Loads is %d, wanted 1 at least", c.Loads)
	}
	if c.CompressAbove < 0 {
		refuse("CompressAbove is %d, wanted none or more", c.CompressAbove)
	}
	if c.CompressAbove > 0 && c.Plain {
		refuse("CompressAbove is %d with Plain, which has no room to say that a value is compressed", c.CompressAbove)
	}
	if name := c.Codec.Name(); isPackedName(name) {
		refuse("Codec is called %q, which is how a compressed value is marked", name)
	}
	if c.Plain && !c.Policy.plain {
		refuse("Policy has tags, a stale time, sliding or negative results, which Plain has no room for")
	}
	if m := c.Memory; m.Size != 0 {
		if m.Size < 0 {
			refuse("Memory.Size is %d, wanted none or more", m.Size)
		}
		between("Memory.TTL", m.TTL, time.Millisecond, longestTTL)
		between("Memory.Period", m.Period, time.Millisecond, time.Minute)
		if m.MaxStaleness < 0 {
			refuse("Memory.MaxStaleness is %v, wanted none or more", m.MaxStaleness)
		}
		if len(m.Sources) == 0 && m.MaxStaleness == 0 {
			refuse("Memory.Sources is empty: name the outboxes whose workers must be heard, or accept Memory.MaxStaleness")
		}
		if c.Redis == nil {
			refuse("Memory needs Redis, which says what is gone")
		}
	}
	if err := readsMasters(c.Redis); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// readsMasters refuses clients that may read from replicas, which lag behind an UNLINK, and those that route by themselves.
func readsMasters(client redis.UniversalClient) error {
	switch client := client.(type) {
	case *redis.Ring:
		return errors.New("redis is a Ring, whose shards the worker does not know: use a single server, Sentinel or Cluster")
	case *redis.ClusterClient:
		if o := client.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New("redis reads from replicas, which lag behind an UNLINK: turn off ReadOnly, RouteByLatency and RouteRandomly")
		}
	}
	return nil
}
