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
	// mostLost is the largest number of leases to look for. Others expire.
	mostLost = 16_384
	// longestSearchPause is the pause between two looks while Redis is unavailable; otherwise it is
	// Timeout.
	longestSearchPause = time.Second
)

// A lostLease may be in Redis without a holder: its request was not answered, and a server that
// hangs may run it later, or it could not be released. While it exists, all callers wait for a load
// that does not run. Its token is not used again.
type lostLease struct {
	key, token string
	looked     bool // at least once, with an answer
}

// lostLeases are looked for by one goroutine, which runs while there are any.
type lostLeases struct {
	redis *backend
	run   *running

	mu        sync.Mutex
	all       []lostLease // only the goroutine takes some away
	searching bool
}

// lose has leases looked for and given back. It does not wait.
func (l *lostLeases) lose(leases ...lostLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, leases[:min(len(leases), mostLost-len(l.all))]...)
	if !l.searching && len(l.all) > 0 {
		l.searching = l.run.launch(l.search)
	}
}

// search looks for lost leases until there are none, or the Cache ends.
func (l *lostLeases) search() {
	for pause := time.Duration(0); sleep.For(l.run.life, pause) == nil; {
		leases := l.current()
		if len(leases) == 0 {
			return
		}
		left, answered := l.look(leases)
		l.replace(len(leases), left)
		if answered {
			pause = 0
		}
		pause = min(max(2*pause, l.redis.timeout), max(longestSearchPause, l.redis.timeout))
	}
}

// current returns the leases to look for. Nothing ends the search.
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

// look releases the leases that exist, and returns those to look for again: until Redis has
// answered twice, a pause apart, without finding the lease the second time. A copy of the request
// may arrive as late as the first answer. answered reports whether Redis answered for any of them.
func (l *lostLeases) look(leases []lostLease) (left []lostLease, answered bool) {
	for chunk := range slices.Chunk(leases, pipelineMost) {
		cmds, _ := send(l.run.life, l.redis, "release", func(ctx context.Context) ([]redis.Cmder, error) {
			return l.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, lost := range chunk {
					p.Get(ctx, lost.key)
				}
				return nil
			})
		})
		var found []call
		for i, lost := range chunk {
			if cmds == nil || classify(cmds[i].Err()) != nil {
				left = append(left, lost)
				continue
			}
			answered = true
			text := cmds[i].(*redis.StringCmd).Val()
			there := strings.HasPrefix(text, lost.token+":")
			if there {
				found = append(found, releaseCall(lost.key, text))
			}
			if there || !lost.looked {
				left = append(left, lostLease{lost.key, lost.token, true})
			}
		}
		if len(found) > 0 {
			_ = l.redis.release(l.run.life, found) // what is still there is found again
		}
	}
	return left, answered
}
