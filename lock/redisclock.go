package lock

import (
	"sync"
	"time"
)

// clockSlack is by how much a server's clock may run slower than ours between two answers, or be set back, unnoticed.
const clockSlack = time.Second

// clockDrift is the fraction by which a server's clock may run slower than this process' clock since the last answer. After a long
// pause the window is empty, and the server tells its time again.
const clockDrift = 1000

// clocks remember by how much the clock of each server is ahead of now, in ms.
//
// An attempt names the window, by the server's own clock, in which it may lock. So a copy of it that arrives late is refused
// without a round trip that would ask for the time. A clock that was set forward or back makes the next attempt miss its
// window, and its answer tells the new time; only what is sent before such a jump and arrives after it can be misjudged. Then a
// late copy may lock once for a TTL, for nobody.
type clocks struct {
	mu      sync.Mutex
	servers map[string]offset
}

// An offset lies between two bounds: the server has read its clock after the question was sent and before the answer came. A window
// ends by the lower one, so it never outlasts the caller.
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

// window is when an attempt that is sent at a time may lock, for whose answer the caller waits so long. That of an unknown server
// is long past, so that it tells its time.
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
