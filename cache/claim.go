package cache

import (
	"time"

	"github.com/unstale/unstale/protocol"
)

// A claim has what a job asks for the lease of its key with, and the lease.
type claim struct {
	names   names
	token   string // of all its requests for the lease
	unread  bool   // whether there is a value is unknown
	useless string // which value the lease script must not return: see reading.useless
	usable  bool   // other callers may get that value
	lease   string // held by this job, or ""
	taken   time.Time
	stamps  map[string]string
	since   mark // of the memory, from before the request for the lease
	// superseded reports that a load under the lease has ended without an error. If its value is not
	// stored, the value that was read before is removed with the lease.
	superseded bool
	waits
}

// granted records a lease that was requested after the mark.
func (c *claim) granted(g grant, since mark) {
	c.lease, c.taken, c.stamps, c.since = g.text, g.sent, g.stamps, since
}

// replaces records what the load is to replace.
func (c *claim) replaces(found reading) {
	c.useless, c.usable, c.unread = found.useless(), found.state > foreign || found.passed, found.unread
}

// removes reports whether releasing the lease removes the value that was read.
func (c *claim) removes() bool { return c.lease != "" && c.superseded && c.usable }

// waits are those for one lease.
type waits struct {
	left    time.Duration // of the lease that was seen last
	holders int
}

// enough records that another caller has the lease, and reports whether so many have had it that
// the caller loads without it. A lease is never extended, so a lease with a longer time to live is
// a new one. Loads under earlier leases stored nothing, or their value would have been found.
func (w *waits) enough(g grant) bool {
	if g.wait > w.left {
		w.holders++
	}
	w.left = g.wait
	return w.holders > mostRounds
}

// names are a key's three in Redis. ok is false for a key that has no lease.
type names struct {
	lease, hold, value string
	ok                 bool
}

func namesOf(name string) names {
	lease, ok := protocol.LeaseKey(name)
	hold, _ := protocol.HoldKey(name)
	return names{lease, hold, name, ok}
}

// keys returns what the scripts of leases and fills are given.
func (n names) keys() []string { return []string{n.lease, n.hold, n.value} }
