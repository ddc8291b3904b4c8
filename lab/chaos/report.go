package chaos

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// counts are the numbers of faults of workers and servers. Safe for concurrent use.
type counts struct {
	WorkerKills, WorkerStops, WorkerFreezes atomic.Int64

	mu     sync.Mutex
	faults map[string]int
}

func (c *counts) fault(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults == nil {
		c.faults = map[string]int{}
	}
	c.faults[name]++
}

// played copies the counts of faults.
func (c *counts) played() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for name, n := range c.faults {
		out[name] = n
	}
	return out
}

// A Report is the result of a run.
type Report struct {
	Seed         uint64        `json:"seed"`
	Took         time.Duration `json:"took_ns"`
	Servers      string        `json:"servers"`
	Rounds       int           `json:"rounds"`
	Transactions int           `json:"transactions"`
	Committed    int           `json:"proven_committed"`   // keys gone
	RolledBack   int           `json:"proven_rolled_back"` // keys there
	// Redis may have lost the keys with its data
	Unproven      int            `json:"unproven"`
	Dead          int            `json:"dead_letters"` // bad on purpose
	WorkerKills   int            `json:"worker_kills"`
	WorkerStops   int            `json:"worker_stops"`
	WorkerFreezes int            `json:"worker_freezes"`
	Faults        map[string]int `json:"faults"` // by name
	Heals         int            `json:"heals"`
	// results of the workers' spot checks; a stale entry is a false alarm, and in Lost
	SpotChecks rig.SpotChecks `json:"spot_checks"`
	Lost       []string       `json:"lost"` // everything that is not as it must be
}

// Proven counts the transactions whose outcome is certain and right.
func (r *Report) Proven() int { return r.Committed + r.RolledBack }

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, %s\n", r.Seed, r.Servers, r.Took.Round(time.Second))
	fmt.Fprintf(&b, "%d transactions in %d rounds: %d proven (%d committed, %d rolled back), %d unproven, %d dead on purpose\n",
		r.Transactions, r.Rounds, r.Proven(), r.Committed, r.RolledBack, r.Unproven, r.Dead)
	fmt.Fprintf(&b, "workers: %d killed, %d stopped, %d frozen; lost writes in redis were detected and healed %d times\n",
		r.WorkerKills, r.WorkerStops, r.WorkerFreezes, r.Heals)
	names := make([]string, 0, len(r.Faults))
	for name := range r.Faults {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&b, "  %4d x %s\n", r.Faults[name], name)
	}
	fmt.Fprintf(&b, "%s\n", r.SpotChecks)
	fmt.Fprintf(&b, "lost or wrong: %d\n", len(r.Lost))
	for i, l := range r.Lost {
		if i == 20 {
			fmt.Fprintf(&b, "  and %d more\n", len(r.Lost)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}
