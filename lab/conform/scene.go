package conform

import (
	"slices"
	"time"

	"github.com/unstale/unstale/protocol"
)

// oldMark is in each value from before a commit. The other one has a character that is not ASCII.
const oldMark, newMark = "old ", "néw "

// A scene is the state of one schedule: a key, perhaps with a tag, whose row is changed once.
type scene struct {
	p        *player
	key, tag string
	name     string // what the worker invalidates: the key or the tag version
	unlinked bool
	told     bool // the message was applied by all clients
	tainted  bool // connections were cut: a read may fail
	copied   bool // a late copy may have taken a lease that nobody holds
}

// open begins a scene whose row has the old value.
func (p *player) open(tagged bool) *scene {
	s := &scene{p: p, key: keyPrefix + p.ledger.schedule}
	if tagged {
		s.tag = "tag"
	}
	s.rename(":é")
	p.sent, p.cuts, p.early = nil, cutNothing, false
	for _, c := range p.clients {
		c.hasOld, c.did = false, work{}
	}
	return s
}

// rename makes the key longer, and the tag with it. It gets a row with the old value.
func (s *scene) rename(suffix string) {
	s.key += suffix
	s.name = s.key
	if s.tag != "" {
		s.tag = s.key + ":tag"
		s.name = protocol.StampKey(s.tag)
	}
	s.p.world.rows[s.key] = oldMark + s.key
}

// The steps of the writer and the worker.
const (
	stepCommit = iota
	stepUnlink
	stepMessage
	writerSteps
)

// write makes steps of the writer and the worker.
func (s *scene) write(steps ...int) {
	for _, step := range steps {
		switch step {
		case stepCommit:
			s.p.world.rows[s.key] = newMark + s.key
		case stepUnlink:
			s.unlinked = true
			s.p.world.invalidate(s.name, false)
		default:
			s.deliver([]string{s.name}, nil)
		}
	}
}

// messagePatience is when a message is sent again. A client may have lost its subscription when it
// came, for example on a machine that is busy for three periods.
const messagePatience = 2 * time.Second

// deliver publishes a message, and waits until all clients have applied it.
func (s *scene) deliver(keys, patterns []string) {
	var waits []*call
	for _, c := range s.p.clients {
		if c.ready.L1 {
			evicted := s.p.stats(c, none).Evicted + int64(len(keys)+len(patterns))
			waits = append(waits, s.p.call(c, Line{Type: LineStats, Evicted: evicted}))
		}
	}
	s.p.until(func() bool {
		s.p.world.message(keys, patterns, false)
		return s.p.within(messagePatience, func() bool { return !slices.ContainsFunc(waits, (*call).runs) }, none)
	}, none)
	s.told = true
}

// ask sends a fetch of the key of the scene, and of others.
func (s *scene) ask(c *client, others ...string) *call {
	l := Line{Type: LineFetch, Keys: append([]string{s.key}, others...)}
	if len(others) > 0 {
		l.Type = LineMany
	}
	if s.tag != "" {
		l.Tags = []string{s.tag}
	}
	for _, key := range l.Keys {
		c.observer.tags[key] = l.Tags
	}
	r := s.p.call(c, l)
	r.unlinked, r.told = s.unlinked, s.told
	return r
}

// read reads the key of the scene, and lets everything go on until it has ended.
func (s *scene) read(c *client) *call {
	r := s.ask(c)
	s.p.complete(r)
	return r
}

// fetch is like read, and checks what it got.
func (s *scene) fetch(c *client) *call {
	r := s.read(c)
	s.judgeRead(r)
	return r
}

// judgeRead checks what a read got.
func (s *scene) judgeRead(r *call) {
	if r.result.Error != "" {
		if !s.tainted {
			s.p.ledger.breach("answers", "a read of %q failed, though its load did not: %s", r.keys, r.result.Error)
		}
		return
	}
	for _, key := range r.keys {
		value, ok := r.result.Values[key]
		switch {
		case value == newMark+key:
		case value != oldMark+key:
			s.p.ledger.breach("value", "a read of %q got %q (%v), which no load returned", key, value, ok)
		case !r.unlinked:
		case r.client.ready.L1 && !r.told && r.client.hasOld:
			// its memory may have it until the message
		default:
			s.p.ledger.breach("stale-read", "a read of %q that began after the UNLINK got %q", key, value)
		}
	}
}

// end lets reads end, and checks them, what Redis has, and a later read of each client. The row was
// changed and invalidated before.
func (s *scene) end(reads ...*call) {
	s.p.complete(reads...)
	for _, r := range reads {
		s.judgeRead(r)
	}
	s.leases()
	if value := s.p.world.usable(s.key); value == oldMark+s.key {
		s.p.ledger.breach("stale-entry", "Redis has the value %q of %q after the UNLINK", value, s.key)
	}
	for _, c := range s.p.clients {
		s.fetch(c)
	}
}

// leasePatience is how long a lease may stay that is no longer needed: a client may look for a lost
// one at the pace of its timeout.
const leasePatience = 4 * commandTimeout

// leases waits until no lease of the key is left. One that a late copy has taken is the judge's.
func (s *scene) leases() {
	lease, _ := protocol.LeaseKey(s.key)
	held := ""
	gone := func() bool {
		held = found(s.p.world.admin.Get(s.p.world.ctx, lease).Result())
		return held == ""
	}
	if !s.copied && !s.p.within(leasePatience, gone, all) {
		s.p.ledger.breach("release", "the lease %q of %q is left after its load", held, s.key)
	}
	if s.copied || held != "" {
		must(s.p.world.admin.Unlink(s.p.world.ctx, lease).Err())
	}
}
