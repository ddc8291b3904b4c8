package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Config configures a [Worker]. The zero value of a field means its default; MySQL, Redis and a
// map are required.
type Config struct {
	// MySQL is the database of the outbox; it must name a database. The worker opens its own
	// sessions, at most ten, and closes them. It pins their settings: settings that would change
	// the meaning of statements are overridden (ParseTime, Loc, charset, ...), and New refuses
	// system variables in Params that it does not pin. Zero Timeout, ReadTimeout and WriteTimeout
	// default to 5 s. Required. New does not modify it.
	MySQL *mysql.Config
	// Redis is the server of the cache: one entry in Addrs for a single server, several (or
	// IsClusterMode) for a Cluster, and MasterName for Sentinel. The worker opens its own
	// connections and closes them. It uses DB, PoolSize (of each node, at least 2, default 8),
	// TLSConfig, Dialer, OnConnect, ClientName, Protocol and the fields for credentials. It sets
	// timeouts, retries and buffers: see RedisTimeout. Required. New does not modify it.
	Redis *redis.UniversalOptions
	// InstrumentRedis, if set, is called by each Run and Drain with its client before the first
	// use, for example to add hooks for traces or metrics. Scans of the keyspace use other
	// connections without them.
	InstrumentRedis func(redis.UniversalClient)
	// MapFile is the map's file, see docs/map.md. It is read by [New], and again when it changes
	// and at [Worker.Reload]; a new version with a fault is logged, and the old map stays in use.
	// Set either MapFile or Map.
	MapFile string
	// MapEnv gives the values of ${...} in MapFile. Default os.LookupEnv.
	MapEnv func(name string) (value string, ok bool)
	// Map is a map that the service has compiled itself. It is used as it is for as long as the
	// worker lives.
	Map *invalidation.Map
	// Name is the worker's in the journal and in the server's list of sessions. 1 to 64 bytes.
	// Default the host's name and the process id, shortened from the left.
	Name string
	// Logger receives what an operator should know: starts, outages, rows that are dead letters
	// now. Default slog.Default().
	Logger *slog.Logger

	// Hooks are called as the worker works, for example to trace batches. Default: none.
	Hooks Hooks

	// ClaimTimeout is when MySQL ends the session of a worker that vanished during a claim, which
	// releases its rows. A batch must end within two fifths of it. Whole seconds, 2 s to 5 min.
	// Default 10 s.
	ClaimTimeout time.Duration
	// LookupTimeout bounds one lookup of the map, on the server. 10 ms to 2 s. Default 200 ms.
	LookupTimeout time.Duration
	// RedisTimeout bounds each of dialling, writing and reading; a pipeline counts as one command.
	// Less than 50 ms would take the fork of a snapshot for an outage. 50 ms to 5 s. Default 200
	// ms.
	RedisTimeout time.Duration
	// RedisWait is how many replicas of a master must have acknowledged a batch (WAIT) before it is
	// settled; fewer, within half of RedisTimeout, are an outage. 0 to 10. Default 0.
	RedisWait int
	// RedisShardedPubSub publishes with SPUBLISH, for subscribers that use SSUBSCRIBE (Redis 7).
	RedisShardedPubSub bool
	// MessageKey signs each message in the event format, so readers with the same key ignore
	// messages of other publishers: see cache.Memory.MessageKeys. At least 16 bytes. Nil: messages
	// are not signed.
	MessageKey protocol.MessageKey
	// SweepShare is the share of Redis time that sweeps of patterns and index sets can take
	// together; 1 is all of it. 0.01 to 1. Default 0.25.
	SweepShare float64
	// SpotChecks is how many unlinked keys per second are checked: whether Redis still holds an
	// entry from before the UNLINK, 1 s, 10 s and 60 s after it. Such an entry is unlinked again.
	// Negative: none. 1 to 1,000. Default 50.
	SpotChecks int
	// BatchRows is how many rows one claim takes at most. More rows cost less each, and hold their
	// locks longer. 1 to 10,000. Default 1,000.
	BatchRows int
	// BatchKeys bounds the keys of one batch; rows beyond it wait for the next, but one row always
	// goes. 1 to 1,000,000. Default 50,000.
	BatchKeys int
	// BatchBytes bounds the parameters that one claim fetches. At least 64 KiB. Default 8 MiB.
	BatchBytes int
	// IdleInterval is the longest wait between two polls, and so the latency of a change without a
	// wake-up. A worker waits that long while the outbox is empty or the load is light, to collect
	// several commits in a batch. At a heavier load it polls more often, at most every 5 ms. Waits
	// are longer by up to a tenth, at random. 1 ms to 1 h. Default 50 ms.
	IdleInterval time.Duration
	// MaxAttempts is how often a row fails by its own fault before it is dead-lettered. 1 to 100.
	// Default 8.
	MaxAttempts int
	// RetryDelay is the wait after a row's first failure; it doubles with each one, jittered, up to
	// 5 min. 1 ms to 5 min. Default 1 s.
	RetryDelay time.Duration
	// JournalRetention is how long the journal is kept. At least 1 min. Default 24 h.
	JournalRetention time.Duration
	// LockRetention is how long a row of cache_outbox_locks stays after the last acquisition of its
	// lock in package lock. Guard then refuses a holder that has held it for that long. 48 h to 10
	// years. Default 720 h.
	LockRetention time.Duration
	// GaugeSchedule and RetentionSchedule are cron specs (robfig/cron, five fields or "@every"),
	// for reading the gauges and for deleting old rows of the journal and of locks. Defaults
	// "@every 10s" and "*/5 * * * *". The latter goes by the clock: processes that live for less
	// than five minutes also do it.
	GaugeSchedule     string
	RetentionSchedule string
	// WakeChannel is the channel where applications can PUBLISH a wake-up after a commit, which
	// starts a poll immediately. It is only a hint. "-" disables it. Default "cache:outbox:wake".
	WakeChannel string
	// WakeInterval is the shortest time between two claims that wake-ups cause. A wake-up that comes
	// sooner waits, and its rows are processed together with others. 0 to 1 min. Default 0: each
	// wake-up claims immediately. Below 10 ms, while wake-ups follow each other within 10 ms, rows of
	// up to 10 ms are unlinked separately and settled together.
	WakeInterval time.Duration
}

const (
	longestRetry = 5 * time.Minute
	longestName  = 64
	noWake       = "-"

	longestRetention   = 10 * 365 * 24 * time.Hour
	leastLockRetention = 48 * time.Hour // twice the longest lease of a lock
)

// WithDefaults returns a copy with zero values replaced by defaults.
func (c Config) WithDefaults() Config {
	pools, keys := c.sessions().WithDefaults(), c.keyspace().WithDefaults()
	c.ClaimTimeout, c.LookupTimeout = pools.ClaimTimeout, pools.LookupTimeout
	c.RedisTimeout, c.SweepShare = keys.Timeout, keys.SweepShare
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.MapEnv == nil {
		c.MapEnv = os.LookupEnv
	}
	c.Name = cmp.Or(c.Name, defaultName())
	c.SpotChecks = cmp.Or(c.SpotChecks, 50)
	c.BatchRows = cmp.Or(c.BatchRows, 1_000)
	c.BatchKeys = cmp.Or(c.BatchKeys, 50_000)
	c.BatchBytes = cmp.Or(c.BatchBytes, 8<<20)
	c.IdleInterval = cmp.Or(c.IdleInterval, 50*time.Millisecond)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 8)
	c.RetryDelay = cmp.Or(c.RetryDelay, time.Second)
	c.JournalRetention = cmp.Or(c.JournalRetention, 24*time.Hour)
	c.LockRetention = cmp.Or(c.LockRetention, 30*24*time.Hour)
	c.GaugeSchedule = cmp.Or(c.GaugeSchedule, "@every 10s")
	c.RetentionSchedule = cmp.Or(c.RetentionSchedule, "*/5 * * * *")
	c.WakeChannel = cmp.Or(c.WakeChannel, protocol.DefaultWakeChannel)
	return c
}

// defaultName returns a name that is unique among the workers of a host.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	return name[max(0, len(name)-longestName):]
}

// sessions returns the part of the sessions of MySQL.
func (c Config) sessions() session.Config {
	return session.Config{MySQL: c.MySQL, Worker: c.Name, ClaimTimeout: c.ClaimTimeout, LookupTimeout: c.LookupTimeout}
}

// keyspace returns the part of Redis. Its beacons live longer than anything that the journal knows.
func (c Config) keyspace() keyspace.Options {
	return keyspace.Options{
		Redis: c.Redis, Timeout: c.RedisTimeout, BeaconTTL: 2 * c.JournalRetention, WaitReplicas: c.RedisWait,
		SweepShare: c.SweepShare, ShardedPubSub: c.RedisShardedPubSub, MessageKey: c.MessageKey,
	}
}

// Validate names the field, its value and the rule that it breaks. It expects the defaults to be in
// place, reads no map and asks no server. No error contains a password.
func (c Config) Validate() error {
	if err := c.validateWork(); err != nil {
		return err
	}
	if err := c.sessions().WithDefaults().Validate(); err != nil {
		return err
	}
	if err := c.keyspace().WithDefaults().Validate(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	switch {
	case c.MapFile == "" && c.Map == nil:
		return errors.New("no map is given: set MapFile or Map")
	case c.MapFile != "" && c.Map != nil:
		return errors.New("two maps are given: set MapFile or Map")
	}
	return nil
}

// validateWork checks what needs neither a server nor a map.
func (c Config) validateWork() error {
	err := cmp.Or(
		within("spot checks", max(c.SpotChecks, 0), 0, 1_000),
		within("batch rows", c.BatchRows, 1, 10_000),
		within("batch keys", c.BatchKeys, 1, 1_000_000),
		within("batch bytes", c.BatchBytes, 64<<10, 1<<30),
		within("max attempts", c.MaxAttempts, 1, 100),
		within("idle interval", c.IdleInterval, time.Millisecond, time.Hour),
		within("wake interval", c.WakeInterval, 0, time.Minute),
		within("retry delay", c.RetryDelay, time.Millisecond, longestRetry),
		within("journal retention", c.JournalRetention, time.Minute, longestRetention),
		within("lock retention", c.LockRetention, leastLockRetention, longestRetention),
	)
	if err != nil {
		return err
	}
	for name, spec := range map[string]string{"gauge schedule": c.GaugeSchedule, "retention schedule": c.RetentionSchedule} {
		if _, err := schedules.Parse(spec); err != nil {
			return fmt.Errorf("%s %q: %w", name, spec, err)
		}
	}
	return nil
}

// within returns an error unless a setting is in its range.
func within[T int | time.Duration](name string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s %v: wanted %v to %v", name, value, low, high)
	}
	return nil
}
