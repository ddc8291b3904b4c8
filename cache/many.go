package cache

import "context"

// FetchMany is like Fetch for several keys. It makes one round trip to each node per 500 cached keys
// or about 256 KiB of values, and one more for the leases of the others, which one call of load
// gets. What a round trip does not answer in time is asked for again, once, with its lease. load
// returns the values of the keys that exist. Its context is like the context of a Loader, and the
// settings of a Fill apply to the whole load.
//
// The result has the values that were found, even if there is an error: a *LoadError with the keys
// that could not be loaded, or an error for the whole call, as of Fetch. Callers of FetchMany in one process
// share loads. A load can fail because of any of its keys, so its error is also returned to waiting
// callers of all of its keys. Other waiting callers load again.
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
		eager := c.eagerness(p)
		if standing == anything {
			if result, ok := inMemory[T](c, key, p, eager); ok {
				found[key] = result.Value
				continue
			}
		}
		r, err := newRequest[T](c, key, p, eager)
		if err != nil {
			return nil, err
		}
		r.standing = standing
		b.requests = append(b.requests, r)
	}
	values, err := b.fetch(ctx)
	for key, value := range values {
		found[key], _ = value.(T)
	}
	return found, err
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
	ctx = asOneCall(ctx)
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
		case found.state < stale && !(found.state == onError && b.c.flights.pauses.last(r.name)):
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
	if err == nil || ctx.Err() != nil {
		return values, err
	}
	if left := b.bridge(ctx, missing, values, err); len(left) > 0 {
		return values, &LoadError{Keys: left, Err: err}
	}
	return values, nil
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

// bridge uses old values for keys whose state is unknown after a failed load, if Redis still holds
// them: an invalidation deletes them. It returns the keys that have none.
func (b *group) bridge(ctx context.Context, wants []*want, values map[string]any, failure error) (left []string) {
	held := &group{c: b.c}
	var old []reading
	for _, w := range wants {
		switch {
		case w.known:
		case w.found.state == onError && !isNotFound(failure):
			held.requests, old = append(held.requests, w.request), append(old, w.found)
		default:
			left = append(left, w.key)
		}
	}
	if len(old) == 0 {
		return left
	}
	again, err := held.read(ctx)
	for i, r := range held.requests {
		if err != nil || !old[i].standsAs(again[i]) {
			left = append(left, r.key)
			continue
		}
		values[r.key] = again[i].value
	}
	return left
}
