package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// popTime is how long a BLPOP waits: go-redis sends whole seconds.
const popTime = time.Second

// wakes are the BLPOPs by which this process waits for releases: one for each name at most, and no more than leaves
// connections for extending locks.
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
	heard bool          // somebody waits
	woken bool          // by a release, while somebody waited: it is theirs to ask
}

// listen implements service.released.
func (w *wakes) listen(name string) (<-chan struct{}, func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pops[name]
	if p == nil {
		if len(w.pops) >= w.most {
			return nil, notWoken
		}
		p = &pop{ended: make(chan struct{})}
		if !w.launch(func() { w.pop(name, p) }) {
			return nil, notWoken
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

func notWoken() bool { return false }

// pop waits, and passes on a wake-up for which nobody waits here any more.
func (w *wakes) pop(name string, p *pop) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*popTime)
	defer cancel()
	began := now()
	_, err := w.instance.client.BLPop(ctx, popTime, w.instance.wakeKey(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		time.Sleep(popTime - min(popTime, now()-began)) // otherwise a Redis that refuses BLPOP would be asked without a pause
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
