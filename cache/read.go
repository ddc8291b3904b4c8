package cache

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reading is what Redis holds under a key, and what it is good for.
type reading struct {
	state state
	entry entry
	text  []byte // as it stands in Redis
	value any    // decoded, where the state is fresh, stale or onError
	life  time.Duration
	early bool // it is to be loaded again before its time
}

// A state is what a reading is good for.
type state int

const (
	absent  state = iota // nothing, or nothing that counts: load
	foreign              // of another format: load, and leave it alone
	onError              // only for a loader that fails
	stale                // until a new one is loaded
	fresh
)

// useless is how a script is told that this reading is worth nothing.
func (r reading) useless() string {
	if r.text == nil {
		return ""
	}
	return digest(r.text)
}

// past is the reading for a caller who may be given none: it says what is to be replaced.
func (r reading) past() reading {
	if r.state != foreign {
		r.state = absent
	}
	return r
}

// raw is what one round trip brings.
type raw struct {
	text []byte
	list bool // the key holds no text
}

// read asks Redis for a key's value, and judges it. The error is that Redis is away, or the caller's context's.
func (r *request) read(ctx context.Context) (reading, error) {
	if len(r.p.o.Tags) == 0 && !r.c.redis.clock.due() {
		slide := r.slide()
		text, err := send(ctx, r.c.redis, "read", func(ctx context.Context) ([]byte, error) { return get(ctx, r.c.redis.client, r.name, slide).Bytes() })
		got, err := rawOf(text, err)
		if err != nil {
			return reading{}, err
		}
		return r.judgeRaw(ctx, got, nil)
	}
	raws, stamps, err := r.c.readRaw(ctx, []*request{r})
	if err != nil {
		return reading{}, err
	}
	return r.judgeRaw(ctx, raws[0], stamps)
}

// readRaw is one GET or GETEX for each request, with the stamps of their policy's tags, and now and then with Redis' time.
// All have one policy.
func (c *Cache) readRaw(ctx context.Context, requests []*request) ([]raw, map[string]string, error) {
	b := c.redis
	tags, due, sent := requests[0].p.o.Tags, b.clock.due(), time.Now()
	type answer struct {
		raws   []raw
		stamps map[string]string
	}
	got, err := send(ctx, b, "read", func(ctx context.Context) (a answer, err error) {
		cmds, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, r := range requests {
				get(ctx, p, r.name, r.slide())
			}
			readStamps(ctx, p, tags)
			if due {
				p.Time(ctx)
				p.Unlink(ctx, b.probe) // the write probe: a replica refuses it
			}
			return nil
		})
		if err := classify(err); err != nil {
			return a, err
		}
		a.raws = make([]raw, len(requests))
		for i := range requests {
			if a.raws[i], err = rawOf(cmds[i].(*redis.StringCmd).Bytes()); err != nil {
				return a, err
			}
		}
		cmds = cmds[len(requests):]
		if due {
			if now := cmds[len(tags)].(*redis.TimeCmd); now.Err() == nil {
				b.clock.heard(now.Val().UnixMicro(), sent)
			}
		}
		a.stamps, err = stampsRead(tags, cmds)
		return a, err
	})
	return got.raws, got.stamps, err
}

// getter is a client or a pipeline.
type getter interface {
	Get(ctx context.Context, key string) *redis.StringCmd
	GetEx(ctx context.Context, key string, expiration time.Duration) *redis.StringCmd
}

func get(ctx context.Context, on getter, name string, slide time.Duration) *redis.StringCmd {
	if slide > 0 {
		return on.GetEx(ctx, name, slide)
	}
	return on.Get(ctx, name)
}

// rawOf tells a value from none, from a key that holds something else, and from a fault.
func rawOf(text []byte, err error) (raw, error) {
	switch {
	case err == nil:
		return raw{text: text}, nil
	case errors.Is(err, redis.Nil):
		return raw{}, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return raw{list: true}, nil
	}
	return raw{}, err
}

// judgeRaw is judge for what was read from Redis.
func (r *request) judgeRaw(ctx context.Context, got raw, stamps map[string]string) (reading, error) {
	if got.list {
		return reading{state: foreign}, nil
	}
	return r.judge(ctx, got.text, stamps)
}

// judge says what a text is good for. Stamps that are not among those at hand are read.
func (r *request) judge(ctx context.Context, text []byte, stamps map[string]string) (reading, error) {
	if text == nil {
		return reading{}, nil
	}
	c := r.c
	if c.config.Plain {
		value, err := r.decode(c.config.Codec, text)
		if err != nil {
			return reading{text: text}, nil
		}
		return reading{state: fresh, text: text, value: value, life: r.p.o.TTL}, nil
	}
	e, err := parseEntry(text, c.config.Codec)
	switch {
	case errors.Is(err, errForeign):
		return reading{state: foreign, text: text}, nil
	case err != nil:
		return reading{text: text}, nil
	}
	found := reading{entry: e, text: text}
	now := c.redis.clock.now()
	switch {
	case e.fresh(now):
		found.state = fresh
	case e.stale(now) && e.Negative == 0:
		found.state = stale
	case e.onError(now):
		found.state = onError
	default:
		return found, nil
	}
	if valid, err := c.stand(ctx, &e, stamps); err != nil || !valid {
		found.state = absent
		return found, err
	}
	if e.Negative == 0 {
		if found.value, err = r.value(&e, text); err != nil {
			found.state = absent
			return found, nil
		}
	}
	found.life = time.Duration(e.Expiry-now) * time.Millisecond
	if e.Idle > 0 {
		found.life = min(found.life, time.Duration(e.Idle)*time.Millisecond/4)
	}
	if beta := r.p.o.EarlyRefresh; beta > 0 && found.state == fresh && e.Negative == 0 {
		ahead := time.Duration(-math.Log(1-rand.Float64()) * beta * float64(e.Cost) * float64(time.Millisecond))
		found.life -= ahead
		found.early = found.life <= 0
	}
	return found, nil
}

// value decodes the entry's. An entry of another writer may have its fields in another order.
func (r *request) value(e *entry, text []byte) (any, error) {
	codec, _ := codecNamed(e.Codec, r.c.config.Codec) // parseEntry has looked
	value, err := r.decode(codec, e.Value)
	if err == nil {
		return value, nil
	}
	if other, parsed := parseOther(text); parsed == nil && other.Codec == e.Codec {
		if value, again := r.decode(codec, other.Value); again == nil {
			*e = other
			return value, nil
		}
	}
	return nil, err
}

// stand reports whether the entry's stamps stand, and reads those that are not at hand.
func (c *Cache) stand(ctx context.Context, e *entry, stamps map[string]string) (bool, error) {
	if len(e.Tags) == 0 {
		return true, nil
	}
	var missing []string
	for tag := range e.Tags {
		if _, ok := stamps[tag]; !ok {
			missing = append(missing, tag)
		}
	}
	if len(missing) > 0 {
		more, err := c.stamps(ctx, missing)
		if err != nil {
			return false, err
		}
		maps.Copy(more, stamps)
		stamps = more
	}
	return e.stands(stamps), nil
}

// stamps reads stamps without making any.
func (c *Cache) stamps(ctx context.Context, tags []string) (map[string]string, error) {
	return send(ctx, c.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		_, stamps, err := c.redis.run(ctx, nil, tags)
		return stamps, err
	})
}

// allTags are the policy's, and those of an earlier entry: the loader is likely to name them again.
func (r *request) allTags(earlier *entry) []string {
	if len(earlier.Tags) == 0 {
		return r.p.o.Tags
	}
	return slices.Compact(slices.Sorted(slices.Values(append(earlier.tagNames(), r.p.o.Tags...))))
}
