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

// Lease takes the lease of a key, for a value that the caller obtains and stores with Set. Take it
// before reading anything that the value depends on: an invalidation ends it. ErrTaken means that
// another caller fills the key, or that no value may be stored now. Other errors come from Redis or
// from the context, or are ErrClosed. A nil policy is Config.Policy. Pass the lease to Set or call
// Release; otherwise other callers wait for it until Config.Lease ends. Lease does not read the
// value of the key: see Set.
func (c *Cache) Lease(ctx context.Context, key string, p *Policy) (*Lease, error) {
	p, err := c.policy(p)
	if err != nil {
		return nil, err
	}
	if c.run.life.Err() != nil {
		return nil, ErrClosed
	}
	r := &request{c: c, key: key, name: c.name(key), p: p}
	j := r.job(alone(flightID{name: r.name}), reading{})
	j.useless = anyValue
	if !j.names.ok || !stampable(j.tags) {
		return nil, fmt.Errorf("take lease: %w: the braces of the key or a tag leave it without one, or a tag is not UTF-8", ErrTaken)
	}
	mark := c.memory.mark()
	g, err := j.ask(ctx)
	switch {
	case err != nil:
		return nil, wrapped("take lease", err)
	case g.kind != "lease":
		return nil, fmt.Errorf("take lease: %w for another %v", ErrTaken, g.wait.Round(time.Millisecond))
	}
	j.granted(g, mark)
	return &Lease{j}, nil
}

// Set stores a value under a lease and uses the lease up. Like SET, it replaces any value of the
// key, even an entry of another format or codec, or a key of another type, which Fetch leaves
// alone. ErrLeaseLost means that it was not stored, and that the value may be old: an invalidation
// came, or Config.Lease has ended. Other errors are ErrSerialization, those of Redis and of the
// context, and ErrClosed.
func Set[T any](ctx context.Context, l *Lease, value T) error {
	if l.j.request.c.run.life.Err() != nil {
		l.Release(context.WithoutCancel(ctx))
		return ErrClosed
	}
	j := *l.j
	j.request.kind = reflect.TypeFor[T]()
	o := outcome{value: value}
	stored, err := j.fillWith(ctx, &Fill{}, &o, time.Since(j.taken))
	switch {
	case err != nil:
		j.request.c.counts.failed()
		l.Release(context.WithoutCancel(ctx))
		return wrapped("set", err)
	case !stored || !o.accepted:
		l.Release(context.WithoutCancel(ctx))
		return ErrLeaseLost
	}
	return nil
}

// Release releases an unused lease. It can be called at any time, more than once, and after Close.
func (l *Lease) Release(ctx context.Context) { l.j.request.c.giveBack(ctx, l.j) }
