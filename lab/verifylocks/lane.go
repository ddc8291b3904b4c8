package verifylocks

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/zk"
)

// mostNames is how many locks a lane has besides the contended one, which has the number 0.
const mostNames = 64

// What holds locks.
const (
	oneRedis  = "redis"
	redlock   = "redlock"
	zookeeper = "zookeeper"
)

// A lane is sections of one sort: a backend, and whether they are guarded. Each has its own locks
// and counters.
type lane struct {
	backend string
	guarded bool
	names   int // besides the contended one
	workers int // of a process, for any of them, divided by the number of backends that run
	hot     int // likewise, for the hot one alone, and not divided
}

// numbers returns how many locks its workers draw from. Workers of bare lanes must meet at their
// locks at any number of backends.
func (l lane) numbers(backends int) int {
	if l.guarded {
		return l.names
	}
	return max(l.names/backends, 1)
}

// lanes are all of them. A backend is two entries here, and one in backends.
var lanes = []lane{
	{backend: oneRedis, guarded: true, names: mostNames, workers: 12, hot: 2},
	{backend: oneRedis, names: 8, workers: 8, hot: 1},
	{backend: redlock, guarded: true, names: mostNames, workers: 12, hot: 2},
	{backend: redlock, names: 8, workers: 8, hot: 1},
	{backend: zookeeper, guarded: true, names: mostNames, workers: 12, hot: 2},
	{backend: zookeeper, names: 8, workers: 8, hot: 1},
}

// backends open what holds the locks, for one process.
var backends = map[string]func(s *spec) (lock.Backend, func() error){
	oneRedis: func(s *spec) (lock.Backend, func() error) {
		client := newClient(s.Redis)
		return lock.Redis{Client: client}, client.Close
	},
	redlock: func(s *spec) (lock.Backend, func() error) {
		var clients []*redis.Client
		for _, addr := range s.Redlock {
			clients = append(clients, newClient(addr))
		}
		return lock.Redlock{Clients: clients}, func() error { return closeAll(clients) }
	},
	zookeeper: func(s *spec) (lock.Backend, func() error) {
		return zk.Backend{Servers: s.ZooKeeper}, func() error { return nil }
	},
}

// Backends returns the names of all of them.
func Backends() []string { return []string{oneRedis, redlock, zookeeper} }

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 64})
}

func closeAll[T interface{ Close() error }](list []T) error {
	var errs []error
	for _, item := range list {
		errs = append(errs, item.Close())
	}
	return errors.Join(errs...)
}

func (l lane) String() string {
	if l.guarded {
		return l.backend + ", guarded"
	}
	return l.backend + ", bare"
}

// counter returns the id of a counter's row.
func counter(turn, lane, number int) int { return (turn*len(lanes)+lane)*(mostNames+1) + number }

// lockName returns the name of the lock of a counter.
func lockName(counter int) string { return fmt.Sprint("counter:", counter) }
