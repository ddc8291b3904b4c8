package verifylocks

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lock"
)

// mostNames is how many locks a lane has beside the hot one, which has the number 0.
const mostNames = 64

// A lane is sections of one sort: a backend, and whether they are guarded. Each has locks and counters of its own.
type lane struct {
	backend string
	guarded bool
	names   int // beside the hot one
	workers int // of a process, for any of them
	hot     int // likewise, for the hot one alone
}

// lanes are all of them. A backend is one entry here, and one in backends.
var lanes = []lane{
	{backend: "redis", guarded: true, names: mostNames, workers: 12, hot: 2},
	{backend: "redis", names: 8, workers: 8, hot: 1},
}

// backends open what holds the locks, for one process.
var backends = map[string]func(s *spec) (lock.Backend, func() error){
	"redis": func(s *spec) (lock.Backend, func() error) {
		client := redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true, PoolSize: 64})
		return lock.Redis{Client: client}, client.Close
	},
}

func (l lane) String() string {
	if l.guarded {
		return l.backend + ", guarded"
	}
	return l.backend + ", bare"
}

// counter is the id of a counter's row.
func counter(turn, lane, number int) int { return (turn*len(lanes)+lane)*(mostNames+1) + number }

// lockName is that of a counter's lock.
func lockName(counter int) string { return fmt.Sprint("counter:", counter) }
