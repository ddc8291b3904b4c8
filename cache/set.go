package cache

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// A Lease is the right to store one value: see Cache.Lease.
type Lease struct {
	j *job
}

// Lease takes the lease of a key, for a value that the caller gets by itself and stores with Set. Take it before reading
// anything that the value is made of: an invalidation ends it. ErrTaken means that somebody else fills the key or that
// nothing may be stored under it; other errors are Redis', the context's, ErrClosed. A nil policy is Config.Policy.
// Give it to Set or to Release; otherwise others wait for it until Config.Lease is over. It does not look at what is under
// the key: see Set.
func (c *Cache) Lease(ctx context.Context, key string, p *Policy) (*Lease, error) {
	p, err := c.policy(p)
	if err != nil {
		return nil, err
	}
	if c.life.Err() != nil {
		return nil, ErrClosed
	}
	r := &request{c: c, key: key, name: c.name(key), p: p}
	j := r.job(alone(flightID{name: r.name}), anyValue)
	if !j.names.ok || !stampable(j.tags) {
		return nil, fmt.Errorf("take lease: %w: the braces of the key or a tag leave it without one, or a tag is not UTF-8", ErrTaken)
	}
	mark := c.memory.mark()
	g, err := c.lease(ctx, j)
	switch {
	case err != nil:
		return nil, wrapped("take lease", err)
	case g.kind != "lease":
		return nil, fmt.Errorf("take lease: %w for another %v", ErrTaken, g.wait.Round(time.Millisecond))
	}
	j.granted(g, mark)
	return &Lease{j}, nil
}

// Set stores a value under a lease, which is used up. It is the caller's own write, and replaces whatever is under the key, as
// SET does: also an entry of another format or codec, or what is no string, which Fetch leaves alone. ErrLeaseLost means that
// it was not stored, and that the value may be old: an invalidation came, or Config.Lease is over. Other errors are
// ErrSerialization, Redis', the context's and ErrClosed.
func Set[T any](ctx context.Context, l *Lease, value T) error {
	if l.j.c.life.Err() != nil {
		l.Release(context.WithoutCancel(ctx))
		return ErrClosed
	}
	j := *l.j
	j.kind = reflect.TypeFor[T]()
	o := outcome{value: value}
	stored, err := j.fillWith(ctx, &Fill{}, &o, time.Since(j.taken))
	switch {
	case err != nil:
		j.c.counts.failed()
		l.Release(context.WithoutCancel(ctx))
		return wrapped("set", err)
	case !stored || !o.accepted:
		l.Release(context.WithoutCancel(ctx))
		return ErrLeaseLost
	}
	return nil
}

// Release gives a lease back that is not used. It may be called at any time, more than once, also after Close.
func (l *Lease) Release(ctx context.Context) { l.j.giveBack(ctx) }
