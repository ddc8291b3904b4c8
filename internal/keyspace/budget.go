package keyspace

import "sync/atomic"

// A budget is the share of Redis time that sweeps and sets have together.
type budget struct {
	share float64
	users atomic.Int32 // calls of Sweep, TakeSet and TakeSets that are under way
}

// newPace returns the pace of a sweep, which has the share together with the others that are under
// way.
func (b *budget) newPace() *pace {
	p := newPace(b.share)
	p.users = &b.users
	return p
}

// busy records that a sweep is running, until the caller calls over.
func (b *budget) busy() (over func()) {
	b.users.Add(1)
	return func() { b.users.Add(-1) }
}
