package conform

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// valueLife is the TTL that clients give to values.
const valueLife = 10 * time.Minute

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
	s.rename(":é")
	if tagged {
		s.tag = s.key + ":tag"
		s.name = protocol.StampKey(s.tag)
	}
	p.sent, p.cuts, p.early = nil, cutNothing, false
	for _, c := range p.clients {
		c.hasOld, c.did = false, work{}
	}
	return s
}

// rename makes the key longer. It gets a row with the old value.
func (s *scene) rename(suffix string) {
	s.key += suffix
	if s.tag == "" {
		s.name = s.key
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
func (s *scene) write(steps ...int) (err error) {
	for _, step := range steps {
		switch step {
		case stepCommit:
			s.p.world.rows[s.key] = newMark + s.key
		case stepUnlink:
			s.unlinked = true
			err = s.p.world.invalidate(s.p.ctx, s.name, false)
		default:
			err = s.deliver([]string{s.name}, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// messagePatience is when a message is sent again. A client may have lost its subscription when it
// came, for example on a machine that is busy for three periods.
const messagePatience = 2 * time.Second

// deliver publishes a message, and waits until all clients have applied it.
func (s *scene) deliver(keys, patterns []string) error {
	p := s.p
	var waits []func() *Line
	for _, c := range p.clients {
		if !c.ready.L1 {
			continue
		}
		before, err := p.stats(c, nil)
		if err != nil {
			return err
		}
		answered, err := p.question(c, before.Evicted+int64(len(keys)+len(patterns)))
		if err != nil {
			return err
		}
		waits = append(waits, answered)
	}
	missing := func(answered func() *Line) bool { return answered() == nil }
	for end := time.Now().Add(patience); ; {
		if err := p.world.message(p.ctx, keys, patterns, false); err != nil {
			return err
		}
		ok, err := p.within(messagePatience, func() bool { return !slices.ContainsFunc(waits, missing) }, nil)
		if err != nil {
			return err
		}
		if ok {
			s.told = true
			return nil
		}
		if time.Now().After(end) {
			return errStuck
		}
	}
}

// judgeRead checks what a read got.
func (s *scene) judgeRead(r *read) {
	ledger := s.p.ledger
	if r.result.Error != "" {
		if !s.tainted {
			ledger.breach("answers", "a read of %q failed, though its load did not: %s", r.keys, r.result.Error)
		}
		return
	}
	for _, key := range r.keys {
		value, ok := r.result.Values[key]
		switch {
		case value == newMark+key:
		case value != oldMark+key:
			ledger.breach("value", "a read of %q got %q (%v), which no load returned", key, value, ok)
		case !r.unlinked:
		case r.client.ready.L1 && !r.told && r.client.hasOld:
			// its memory may have it until the message
		default:
			ledger.breach("stale-read", "a read of %q that began after the UNLINK got %q", key, value)
		}
	}
}

// end lets reads end, and checks them, what Redis has, and a later read of each client. The row was
// changed and invalidated before.
func (s *scene) end(reads ...*read) error {
	if err := s.p.complete(reads...); err != nil {
		return err
	}
	for _, r := range reads {
		s.judgeRead(r)
	}
	if err := s.leases(); err != nil {
		return err
	}
	value, err := s.p.world.usable(s.p.ctx, s.key)
	if err != nil {
		return err
	}
	if value == oldMark+s.key {
		s.p.ledger.breach("stale-entry", "Redis has the value %q of %q after the UNLINK", value, s.key)
	}
	for _, c := range s.p.clients {
		if _, err := s.fetch(c); err != nil {
			return err
		}
	}
	return nil
}

// fetch reads the key of a scene, and checks what it got.
func (s *scene) fetch(c *client) (*read, error) {
	r, err := s.p.read(c, s)
	if err == nil {
		s.judgeRead(r)
	}
	return r, err
}

// leasePatience is how long a lease may stay that is no longer needed: a client may look for a lost
// one at the pace of its timeout.
const leasePatience = 4 * commandTimeout

// leases waits until no lease of the key is left. One that a late copy has taken is the judge's.
func (s *scene) leases() error {
	lease, _ := protocol.LeaseKey(s.key)
	if s.copied {
		return s.p.world.admin.Unlink(s.p.ctx, lease).Err()
	}
	for end := time.Now().Add(leasePatience); ; {
		held, err := s.p.world.admin.Get(s.p.ctx, lease).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Now().After(end) {
			s.p.ledger.breach("release", "the lease %q of %q is left after its load", held, s.key)
			return s.p.world.admin.Unlink(s.p.ctx, lease).Err()
		}
		for _, t := range slices.Clone(s.p.held) {
			s.p.release(t, true)
		}
		if _, err := s.p.absorb(2 * time.Millisecond); err != nil {
			return err
		}
	}
}
