package cache

import "context"

// FetchMany is like Fetch for several keys. It makes one round trip to each node per 500 cached
// keys, and one more for the leases of the others, which one call of load gets. load returns the
// values of the keys that exist, and the result has the values that were found. Its context is like
// the context of a Loader, and the settings of a Fill apply to the whole load. The error is for the
// whole call: see Fetch. Callers of FetchMany in one process share loads. A load can fail because
// of any of its keys, so its error is also returned to waiting callers of all of its keys. Other
// waiting callers load again.
func FetchMany[T any](ctx context.Context, c *Cache, keys []string, load func(ctx context.Context, keys []string) (map[string]T, error), p *Policy) (map[string]T, error) {
	found := make(map[string]T, len(keys))
	b := &group{c: c, load: func(ctx context.Context, keys []string, each func(string, any)) error {
		values, err := load(ctx, keys)
		for key, value := range values {
			each(key, asRead(c.config.Codec, value))
		}
		return c.asNotFound(err)
	}}
	p = p.on(c.config.Policy)
	asked := make(map[string]bool, len(keys))
	if c.run.life.Err() != nil {
		return nil, ErrClosed
	}
	standing, err := c.standing(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if asked[key] {
			continue
		}
		asked[key] = true
		c.popularity.read(key)
		if standing == anything {
			if result, ok := inMemory[T](c, key, p); ok {
				found[key] = result.Value
				continue
			}
		}
		r, err := newRequest[T](c, key, p)
		if err != nil {
			return nil, err
		}
		r.standing = standing
		b.requests = append(b.requests, r)
	}
	values, err := b.fetch(ctx)
	if err != nil {
		return nil, err
	}
	for key, value := range values {
		found[key], _ = value.(T)
	}
	return found, nil
}

// A group is one call for several keys.
type group struct {
	c        *Cache
	requests requests
	load     func(ctx context.Context, keys []string, each func(string, any)) error
	arrival  uint64          // see outcome.counts
	wanted   map[string]bool // the keys to load
}

// fetch returns what is known to exist of the group.
func (b *group) fetch(ctx context.Context) (map[string]any, error) {
	if len(b.requests) == 0 {
		return nil, ctx.Err()
	}
	b.arrival = b.c.loaders.events.Load()
	mark := b.c.memory.mark()
	readings, err := b.read(ctx)
	if ended := ctx.Err(); ended != nil {
		for range b.requests {
			b.c.counts.read(absent)
		}
		return nil, ended
	}
	values := map[string]any{}
	var missing, expired []*want
	for i, r := range b.requests {
		w := &want{request: r, away: err != nil}
		if err == nil {
			w.found = readings[i]
		}
		if r.standing == loaded {
			w.found = w.found.past()
		}
		found := w.found
		b.c.counts.read(found.state)
		if found.state == fresh && b.c.shadows != nil {
			b.c.shadows.hit(ctx, r, found, mark, b.loader(r.key))
		}
		switch {
		case found.state < stale:
			missing = append(missing, w)
		case found.entry.Negative == 0:
			values[r.key] = found.value
			if found.state == fresh {
				r.keep(found, mark)
			}
			if found.state == stale || found.early {
				expired = append(expired, w)
			}
		}
	}
	b.refresh(ctx, expired)
	err = b.fill(ctx, missing, values)
	if err != nil && ctx.Err() == nil && !isNotFound(err) && b.bridge(ctx, missing, values) {
		err = nil
	}
	return values, err
}

// loader returns a loader of one key.
func (b *group) loader(key string) func(context.Context) (any, error) {
	return func(ctx context.Context) (value any, err error) {
		found := false
		err = b.load(ctx, []string{key}, func(name string, v any) {
			if name == key {
				value, found = v, true
			}
		})
		if err == nil && !found {
			err = ErrNotFound
		}
		return value, err
	}
}

// bridge uses old values for keys whose state is unknown, and reports whether Redis still holds one
// for each of them: an invalidation deletes it.
func (b *group) bridge(ctx context.Context, wants []*want, values map[string]any) bool {
	left := &group{c: b.c}
	var old []reading
	for _, w := range wants {
		if w.known {
			continue
		}
		if w.found.state != onError {
			return false
		}
		left.requests, old = append(left.requests, w.request), append(old, w.found)
	}
	again, err := left.read(ctx)
	if err != nil {
		return false
	}
	for i, r := range left.requests {
		if !old[i].standsAs(again[i]) {
			return false
		}
		values[r.key] = again[i].value
	}
	return true
}
