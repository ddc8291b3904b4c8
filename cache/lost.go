package cache

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
)

const (
	// mostLost is how many leases are looked for at most. Those beyond end by themselves.
	mostLost = 16_384
	// longestSearchPause is between two looks while Redis is away; otherwise it is Timeout.
	longestSearchPause = time.Second
)

// A lostLease may be in Redis though nobody holds it: its request was not answered, and a server that stands still may run
// it later, or it could not be given back. While it is there, everybody waits for a load that nobody does. Its token is
// used for nothing more.
type lostLease struct {
	key, token string
	looked     bool // at least once, with an answer
}

// lostLeases are looked for by one goroutine, which runs while there are any.
type lostLeases struct {
	mu        sync.Mutex
	all       []lostLease // only the goroutine takes some away
	searching bool
}

// lose has leases looked for and given back. It does not wait.
func (c *Cache) lose(leases ...lostLease) {
	l := &c.lost
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, leases[:min(len(leases), mostLost-len(l.all))]...)
	if !l.searching && len(l.all) > 0 {
		l.searching = c.launch(c.search)
	}
}

// search looks for lost leases until there are none, or the Cache ends.
func (c *Cache) search() {
	for pause := time.Duration(0); sleep.For(c.life, pause) == nil; {
		leases := c.lost.current()
		if len(leases) == 0 {
			return
		}
		left, answered := c.look(leases)
		c.lost.replace(len(leases), left)
		if answered {
			pause = 0
		}
		pause = min(max(2*pause, c.config.Timeout), max(longestSearchPause, c.config.Timeout))
	}
}

// current returns what is to be looked for. Nothing ends the search.
func (l *lostLeases) current() []lostLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.searching = len(l.all) > 0
	return slices.Clone(l.all)
}

// replace puts those that are left in the place of the first n.
func (l *lostLeases) replace(n int, left []lostLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(left, l.all[n:]...)
}

// look gives back those leases that are there, and returns those to look for again: until Redis has answered twice, a
// pause apart, and the second time there was none, since a copy of the request may come as late as the first answer.
// answered says that Redis did, to any of them.
func (c *Cache) look(leases []lostLease) (left []lostLease, answered bool) {
	for chunk := range slices.Chunk(leases, pipelineMost) {
		cmds, _ := send(c.life, c.redis, "release", func(ctx context.Context) ([]redis.Cmder, error) {
			return c.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, l := range chunk {
					p.Get(ctx, l.key)
				}
				return nil
			})
		})
		var found []call
		for i, l := range chunk {
			if cmds == nil || classify(cmds[i].Err()) != nil {
				left = append(left, l)
				continue
			}
			answered = true
			text := cmds[i].(*redis.StringCmd).Val()
			there := strings.HasPrefix(text, l.token+":")
			if there {
				found = append(found, releaseCall(l.key, text))
			}
			if there || !l.looked {
				left = append(left, lostLease{l.key, l.token, true})
			}
		}
		if len(found) > 0 {
			_ = c.runReleases(c.life, found) // what is still there is found again
		}
	}
	return left, answered
}
