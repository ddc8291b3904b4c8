package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/lock/internal/locking"
)

// A Locker acquires locks, for one process and one backend. Safe for concurrent use. Close it.
type Locker struct {
	config  Config
	service locking.Service
	mint    *mint // nil without MySQL
	queues  queues
	counts  counts
	pause   time.Duration // firstPause, but in tests

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex // guards closed against work
	closed bool
	held   map[*Held]bool // not ended yet; true: it is kept
	swept  bool           // the others will be kept soon
	work   sync.WaitGroup // goroutines that extend, mint, wait or release
}

// New returns a Locker with defaults applied to config. It sends nothing: an unavailable server
// shows at the first acquisition. The error names every invalid field.
func New(config Config) (*Locker, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l := &Locker{config: config, queues: queues{byName: map[string]*queue{}}, pause: firstPause, held: map[*Held]bool{}}
	l.life, l.end = context.WithCancel(context.Background())
	service, err := locking.Open(config.Backend.Opener(), locking.Opening{Config: locking.Config{
		TTL: config.TTL, Margin: config.Margin, Timeout: config.Timeout, Holder: config.Holder, Logger: config.Logger,
	}, Life: l.life, Launch: l.launch})
	if err != nil {
		return nil, fmt.Errorf("make locker: %w", err)
	}
	l.service = service
	if config.MySQL != nil {
		if l.mint, err = newMint(config, &l.counts.mint); err != nil {
			return nil, fmt.Errorf("make locker: %w", err)
		}
	}
	return l, nil
}

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (l *Locker) launch(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}

// register registers a lock for Close, which ends its context. The lock is extended only later:
// many locks are released before, and then cost neither a goroutine nor a timer. It returns false
// after Close.
func (l *Locker) register(h *Held) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.held[h] = false
	if !l.swept {
		l.swept = true
		// the deadline is as far away at least: Timeout and Margin leave that much
		time.AfterFunc(min(glance, l.config.TTL/6), l.keepAll)
	}
	return true
}

// keepAll begins to keep the locks that are held.
func (l *Locker) keepAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swept = false
	for h, kept := range l.held {
		if !kept && !l.closed {
			l.held[h] = true
			l.work.Go(h.keep)
		}
	}
}

// remove unregisters a lock that has ended, and reports whether it was being extended.
func (l *Locker) remove(h *Held) (kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept = l.held[h]
	delete(l.held, h)
	return kept
}

// Close ends the contexts of held locks, and waits for running requests: at most MintWait plus a
// few seconds. It releases nothing in Redis, so release first: other processes wait for the end of
// a lease. A ZooKeeper session ends, and with it all locks. Later calls return ErrClosed. A Redis
// client stays open.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	l.end()
	for _, h := range held {
		h.end(fmt.Errorf("lock %q: %w", h.claim.Name, ErrClosed))
	}
	l.work.Wait()
	l.service.Close()
	if l.mint != nil {
		return l.mint.close()
	}
	return nil
}

// A Config configures a Locker. Backend is required, and so is MySQL for Guard and InTx.
type Config struct {
	// Backend keeps the locks: a [Redis], a [Redlock] or the Backend of package lock/zk.
	Backend Backend

	// MySQL is the database of the fencing tokens, in the table cache_outbox_locks, which 'unstale
	// migrate up' creates: the database that sections change. It must be the only server that
	// accepts writes. The Locker opens its own sessions: at most eight, and at most eight more that
	// wait for the transaction of an earlier section. Nil: no tokens are minted, and Guard and InTx
	// return an error.
	MySQL *mysql.Config

	// TTL is how long the lock outlives a holder that has vanished; with ZooKeeper 1.5 times as
	// long. It is extended each TTL/3 while it is held. At least 100 ms. Zero: 10 s.
	TTL time.Duration

	// Margin is by how much a holder's context ends earlier than the lease, below half of TTL. It
	// allows for clocks that run at different rates, and for how long a section takes to notice.
	// Redlock needs TTL/100 and 2 ms. Zero: TTL/10.
	Margin time.Duration

	// Timeout bounds each request to the backend, with its retries, and how long contenders for a
	// Redlock retry. At most TTL/3, to leave time to repeat a failed extension. Zero: 200 ms, or
	// TTL/3 if that is less. With ZooKeeper: TTL/4, since the client leaves a server that does not
	// reply for half of that.
	Timeout time.Duration

	// MintWait is how long an acquisition waits in MySQL for the guarded transaction of an earlier
	// holder, in whole seconds. It should exceed TTL, since the server ends the transaction of a
	// frozen holder after TTL. Zero: TTL, rounded up, plus 2 s.
	MintWait time.Duration

	// FailFast makes Acquire return the first error of a server, instead of trying again as long as
	// its context lasts. Zero: false.
	FailFast bool

	// Holder is the name of this process in errors of other processes, at most 255 bytes. Zero: the
	// host name and the process ID.
	Holder string

	// Logger receives sections that continue after their context has ended, sections whose lock was
	// not released, and duplicate clients of one instance of a Redlock. Nil: slog.Default().
	Logger *slog.Logger
}

const (
	minTTL     = 100 * time.Millisecond
	maxTTL     = 24 * time.Hour
	mostHolder = 255
)

// WithDefaults returns a copy with every zero replaced that has a default.
func (c Config) WithDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.Margin = cmp.Or(c.Margin, c.TTL/10)
	if c.Timeout == 0 {
		var opener Opener
		if c.Backend != nil {
			opener = c.Backend.Opener()
		}
		c.Timeout = locking.Timeout(opener, c.TTL)
	}
	c.MintWait = cmp.Or(c.MintWait, time.Duration(wholeSeconds(c.TTL)+2)*time.Second)
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		c.Holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate returns an error for each field at fault, joined. Apply WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	refuse := func(broken bool, field string, value any, rule string) {
		if broken {
			errs = append(errs, fmt.Errorf("%s is %v: %s", field, value, rule))
		}
	}
	refuse(c.Backend == nil, "Backend", "nil", "give lock.Redis{Client: ...}, lock.Redlock{Clients: ...} or, of package lock/zk, zk.Backend{Servers: ...}")
	refuse(c.TTL < minTTL || c.TTL > maxTTL, "TTL", c.TTL, "it must be from 100ms to 24h")
	refuse(c.Margin < 0 || c.Margin >= c.TTL/2, "Margin", c.Margin, "it must be positive, and below half of TTL")
	refuse(c.Timeout < time.Millisecond || c.Timeout > c.TTL/3, "Timeout", c.Timeout, "it must be from 1ms to a third of TTL, so that an extension can be repeated")
	refuse(c.MintWait < time.Second || c.MintWait%time.Second != 0, "MintWait", c.MintWait, "it must be in whole seconds, and at least one")
	refuse(len(c.Holder) > mostHolder, "Holder", fmt.Sprintf("of %d bytes", len(c.Holder)), "it must have at most 255")
	return errors.Join(errs...)
}

// wholeSeconds rounds up: MySQL counts its timeouts in seconds.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// A Backend keeps locks: [Redis], [Redlock] or the Backend of package lock/zk. Only packages of
// unstale make one, since others cannot fill an Opener.
type Backend interface {
	// Opener returns what a Locker uses. It sends nothing.
	Opener() Opener
}

// An Opener opens a Backend for a Locker. Applications do not need it.
type Opener = locking.Opener

// MaxName is the length of a lock's name at most, in bytes.
const MaxName = 255

// checkName refuses what the backends cannot tell apart.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the lock is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name of the lock has %d bytes, %d at most are possible", len(name), MaxName)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the name of the lock, %q, has a brace, from which Redis Cluster would derive its slot", name)
	}
	return nil
}

// onRedis is a Backend that keeps locks in instances of Redis.
type onRedis interface {
	instances() []redis.UniversalClient
}

func (r Redis) instances() []redis.UniversalClient { return []redis.UniversalClient{r.Client} }

func (r Redlock) instances() (all []redis.UniversalClient) {
	for _, client := range r.Clients {
		all = append(all, client)
	}
	return all
}

// CheckServer returns an error if the server of the locks is unsuitable: a Redis that may evict
// them, or loses them at a restart, as a cache does, or one that a worker uses as a cache. In a
// Cluster it asks every master, and with a Redlock every instance. It checks nothing for other
// backends.
//
// It needs the permissions +info +scan +pubsub|numsub, which locks do not need. An error wraps the
// reply of Redis if one is missing. CheckServer recognizes a cache by keys of workers, among some
// 10,000 keys of the database, and by the default wake-up channel.
//
// Call it at startup, or in a check before a deployment.
func (l *Locker) CheckServer(ctx context.Context) error {
	backend, ok := l.config.Backend.(onRedis)
	if !ok {
		return nil
	}
	var faults []error
	for i, client := range backend.instances() {
		err := redisclient.CheckState(ctx, client)
		if _, several := backend.(Redlock); several && err != nil {
			err = fmt.Errorf("Redlock.Clients[%d]: %w", i, err)
		}
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
