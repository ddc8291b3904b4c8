package cache

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// FetchMany is Fetch for several keys: one round trip to each node for those that are cached, one more for the leases of
// the others, which one call of load gets. load returns the values of the keys that exist, and the result has those that
// were found. What a Fill decides is for all of that load. Its error is that of the whole call: see Fetch.
func FetchMany[T any](ctx context.Context, c *Cache, keys []string, load func(ctx context.Context, keys []string) (map[string]T, error), p *Policy) (map[string]T, error) {
	found := make(map[string]T, len(keys))
	b := &group{c: c, load: func(ctx context.Context, keys []string, each func(string, any)) error {
		values, err := load(ctx, keys)
		for key, value := range values {
			each(key, value)
		}
		return err
	}}
	asked := make(map[string]bool, len(keys))
	standing, err := c.standing(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if asked[key] {
			continue
		}
		asked[key] = true
		if standing == anything {
			if value, ok := inMemory[T](c, key, p); ok {
				found[key] = value
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
	requests []*request
	load     func(ctx context.Context, keys []string, each func(string, any)) error
}

// fetch returns what is known to exist of the group.
func (b *group) fetch(ctx context.Context) (map[string]any, error) {
	if len(b.requests) == 0 {
		return nil, ctx.Err()
	}
	mark := b.c.memory.mark()
	readings, err := b.read(ctx)
	if ended := ctx.Err(); ended != nil {
		return nil, ended
	}
	values := map[string]any{}
	var missing, expired []*job
	for i, r := range b.requests {
		found := reading{}
		if err == nil {
			found = readings[i]
		}
		if r.standing == loaded {
			found = found.past()
		}
		b.c.counts.read(found.state)
		j := r.job(alone(flightID{name: r.name}), found.useless())
		j.away = err != nil || found.state == foreign || !j.names.ok || !stampable(j.tags)
		switch {
		case found.state < stale:
			missing = append(missing, j)
		case found.entry.Negative == 0:
			values[r.key] = found.value
			if found.state == fresh {
				r.keep(found, mark)
			}
			if found.state == stale || found.early {
				expired = append(expired, j)
			}
		}
	}
	if len(expired) > 0 {
		b.c.launch(func() {
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(b.c.life, cancel)()
			_ = b.fill(ctx, expired, map[string]any{}, false)
		})
	}
	if len(missing) == 0 {
		return values, nil
	}
	return values, b.fill(ctx, missing, values, true)
}

// fill loads the values of jobs, each under its lease if it can be had, and waits for those that others load.
func (b *group) fill(ctx context.Context, jobs []*job, values map[string]any, wait bool) error {
	end := time.Now().Add(b.c.config.Lease)
	for pause := firstPause; len(jobs) > 0; pause = min(2*pause, longestPause) {
		mine, others := b.acquire(ctx, jobs, values)
		if time.Now().After(end) {
			mine, others = append(mine, others...), nil // whoever holds those has had time enough
		}
		if len(mine) > 0 {
			if err := b.perform(ctx, mine, values); err != nil {
				return err
			}
		}
		if jobs = others; len(jobs) == 0 || !wait {
			return nil
		}
		if sleep.For(ctx, jittered(pause)) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// acquire asks for all leases at once. Values that others have stored meanwhile go to values. It returns the jobs to load
// for, with a lease or without, and those that somebody else loads.
func (b *group) acquire(ctx context.Context, jobs []*job, values map[string]any) (mine, others []*job) {
	var asking []*job
	for _, j := range jobs {
		if j.away {
			mine = append(mine, j)
		} else {
			asking = append(asking, j)
		}
	}
	if len(asking) == 0 {
		return mine, nil
	}
	mark := b.c.memory.mark()
	grants, err := b.c.leases(ctx, asking)
	if err != nil {
		for _, j := range asking {
			j.away = true
		}
		return append(mine, asking...), nil
	}
	for i, j := range asking {
		switch g := grants[i]; g.kind {
		case "lease":
			j.granted(g, mark)
			mine = append(mine, j)
		case "taken":
			if j.standing == loaded {
				mine = append(mine, j)
			} else {
				others = append(others, j)
			}
		case "value":
			found, err := j.judge(ctx, []byte(g.text), g.stamps)
			switch {
			case err == nil && found.state == fresh && j.standing != loaded:
				j.keepIf(found, mark)
				if found.entry.Negative == 0 {
					values[j.key] = found.value
				}
			case err == nil && found.state != foreign:
				j.useless = found.useless()
				others = append(others, j) // asks again
			default:
				mine = append(mine, j)
			}
		default: // held or refused: loaded and not stored
			mine = append(mine, j)
		}
	}
	return mine, others
}
