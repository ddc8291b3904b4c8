package lock

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/lock/internal/locking"
)

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
	if c.TTL == 0 {
		c.TTL = 10 * time.Second
	}
	if c.Margin == 0 {
		c.Margin = c.TTL / 10
	}
	if c.Timeout == 0 {
		var opener Opener
		if c.Backend != nil {
			opener = c.Backend.Opener()
		}
		c.Timeout = locking.Timeout(opener, c.TTL)
	}
	if c.MintWait == 0 {
		c.MintWait = time.Duration(wholeSeconds(c.TTL)+2) * time.Second
	}
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		c.Holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error for each field at fault, joined. Apply WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	refuse := func(field string, value any, rule string) {
		errs = append(errs, fmt.Errorf("%s is %v: %s", field, value, rule))
	}
	if c.Backend == nil {
		refuse("Backend", "nil", "give lock.Redis{Client: ...}, lock.Redlock{Clients: ...} or, of package lock/zk, zk.Backend{Servers: ...}")
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		refuse("TTL", c.TTL, "it must be from 100ms to 24h")
	}
	if c.Margin < 0 || c.Margin >= c.TTL/2 {
		refuse("Margin", c.Margin, "it must be positive, and below half of TTL")
	}
	if c.Timeout < time.Millisecond || c.Timeout > c.TTL/3 {
		refuse("Timeout", c.Timeout, "it must be from 1ms to a third of TTL, so that an extension can be repeated")
	}
	if c.MintWait < time.Second || c.MintWait%time.Second != 0 {
		refuse("MintWait", c.MintWait, "it must be in whole seconds, and at least one")
	}
	if len(c.Holder) > mostHolder {
		refuse("Holder", fmt.Sprintf("of %d bytes", len(c.Holder)), "it must have at most 255")
	}
	return errors.Join(errs...)
}

// wholeSeconds rounds up: MySQL counts its timeouts in seconds.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
