package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lock/internal/locking"
)

// popTime is how long a BLPOP waits, or twice that: go-redis sends whole seconds. Redis serves the
// oldest one first. If all waited equally long, the same ones could always end before their turn.
const popTime = time.Second

// wakes are the BLPOPs of this process that wait for releases: at most one per name, and few enough
// to leave connections for extending locks.
type wakes struct {
	instance *instance
	most     int
	launch   func(func()) bool

	mu   sync.Mutex
	pops map[string]*pop
}

// A pop is one BLPOP. It outlives a waiter that gives up, for the next one.
type pop struct {
	ended chan struct{} // closed at its end
	heard bool          // there is a waiter
	woken bool          // by a release, while there was a waiter: the waiter asks
}

// listen implements the Released of a locking.Service.
func (w *wakes) listen(name string) (<-chan struct{}, func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pops[name]
	if p == nil {
		if len(w.pops) >= w.most {
			return nil, locking.NotWoken
		}
		p = &pop{ended: make(chan struct{})}
		if !w.launch(func() { w.pop(name, p) }) {
			return nil, locking.NotWoken
		}
		w.pops[name] = p
	}
	p.heard = true
	return p.ended, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.heard = false
		return p.woken
	}
}

// pop waits, and passes on a wake-up if this process has no waiter left.
func (w *wakes) pop(name string, p *pop) {
	lasts := popTime * time.Duration(1+rand.N(2))
	ctx, cancel := context.WithTimeout(context.Background(), lasts+popTime)
	defer cancel()
	began := locking.Now()
	_, err := w.instance.client.BLPop(ctx, lasts, w.instance.wakeKey(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		// otherwise a Redis that refuses BLPOP would be asked without a pause
		time.Sleep(popTime - min(popTime, locking.Now()-began))
	}
	w.mu.Lock()
	delete(w.pops, name)
	p.woken = err == nil && p.heard
	close(p.ended)
	w.mu.Unlock()
	if err == nil && !p.woken {
		w.instance.passOn(name)
	}
}
