package lock

import (
	"sync"
	"time"
)

// clockSlack is how much slower than this process's clock a server clock may run between two
// answers, or be set back, undetected.
const clockSlack = time.Second

// clockDrift is an inverse fraction: a server clock may have run slower by that than the clock of
// this process since the last answer. After a long pause the window is empty, and the server
// returns its time again.
const clockDrift = 1000

// clocks keep the difference between the clock of each server and the clock of this process, in ms.
//
// An attempt contains the window for locking, by the clock of the server. So a late copy of it is
// refused without a round trip for the time. If a clock was set, the next attempt misses its
// window, and the answer has the new time. Only a request that is sent before such a jump and
// arrives after it can be misjudged. Then a late copy may lock once for a TTL, without a holder.
type clocks struct {
	mu      sync.Mutex
	servers map[string]offset
}

// An offset lies between two bounds: the server has read its clock after the question was sent and
// before the answer came. A window ends by the lower one, so it never outlasts the caller.
type offset struct {
	low, high int64
	answered  time.Duration
}

// learn takes the time that an answer tells.
func (c *clocks) learn(node string, server int64, sent, answered time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[string]offset{}
	}
	c.servers[node] = offset{low: server - answered.Milliseconds() - 1, high: server - sent.Milliseconds(), answered: answered}
}

// window returns when an attempt that is sent at sent may lock, if its caller waits for patience.
// The window of an unknown server is in the past, which makes the server return its time.
func (c *clocks) window(node string, sent, patience time.Duration) (notBefore, notAfter int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.servers[node]
	if !ok {
		return 0, 0
	}
	at := sent.Milliseconds()
	drift := (sent - known.answered).Milliseconds() / clockDrift
	return at + known.low - clockSlack.Milliseconds(), at + known.low + patience.Milliseconds() - max(drift, 0)
}
