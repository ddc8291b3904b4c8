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
	list bool          // the key holds no text
	life time.Duration // of a bare value in memory: see request.asksLife
}

// read asks Redis for a key's value, judges it, and prolongs it where it slides. The error is that Redis is away, or the
// caller's context's.
func (r *request) read(ctx context.Context) (reading, error) {
	var raw raw
	var stamps map[string]string
	if len(r.p.o.Tags) == 0 && !r.asksLife() && r.c.redis.alone() {
		text, err := send(ctx, r.c.redis, "read", func(ctx context.Context) ([]byte, error) { return r.c.redis.client.Get(ctx, r.name).Bytes() })
		if raw, err = rawOf(text, err); err != nil {
			return reading{}, err
		}
	} else {
		raws, read, err := r.c.readRaw(ctx, []*request{r})
		if err != nil {
			return reading{}, err
		}
		raw, stamps = raws[0], read
	}
	found, err := r.judgeRaw(ctx, raw, stamps)
	if err != nil || !r.slides(&found) {
		return found, err
	}
	return r.slide(ctx, found)
}

// asksLife reports whether a read asks for how long a value has to live too. A bare value does not say it, and memory must
// not keep it for longer.
func (r *request) asksLife() bool {
	return r.c.config.Plain && r.c.memory != nil && !r.p.o.SkipMemory && !r.untyped
}

// readRaw is one GET for each request, with the stamps of their policy's tags. All have
// one policy.
func (c *Cache) readRaw(ctx context.Context, requests []*request) ([]raw, map[string]string, error) {
	b := c.redis
	tags, lives, sent := requests[0].p.o.Tags, requests[0].asksLife(), time.Now()
	type answer struct {
		raws   []raw
		stamps map[string]string
	}
	got, err := send(ctx, b, "read", func(ctx context.Context) (a answer, err error) {
		cmds, err := b.pipelined(ctx, func(p redis.Pipeliner) error {
			if lives { // before the values: one that ends in between is not given the time of what comes after it
				for _, r := range requests {
					p.PTTL(ctx, r.name)
				}
			}
			for _, r := range requests {
				p.Get(ctx, r.name)
			}
			readStamps(ctx, p, tags)
			return nil
		})
		if err := classify(err); err != nil {
			return a, err
		}
		var left []redis.Cmder
		if lives {
			left, cmds = cmds[:len(requests)], cmds[len(requests):]
		}
		if a.raws, err = rawsOf(cmds[:len(requests)]); err != nil {
			return a, err
		}
		for i, cmd := range left {
			a.raws[i].life = requests[i].lifeOf(cmd.(*redis.DurationCmd), sent)
		}
		cmds = cmds[len(requests):]
		a.stamps, err = stampsRead(tags, cmds)
		return a, err
	})
	return got.raws, got.stamps, err
}

// lifeOf is how long memory may keep a bare value, by an answer to what was sent at sent: not at all where the server refuses
// to tell, and as long as the policy says where the value has no end.
func (r *request) lifeOf(left *redis.DurationCmd, sent time.Time) time.Duration {
	switch life := left.Val(); {
	case left.Err() != nil:
		return 0
	case life == noEnd:
		return r.p.o.TTL
	default:
		return life - time.Since(sent)
	}
}

// noEnd is go-redis' answer to PTTL for a key without a time.
const noEnd = time.Duration(-1)

// slides reports whether a reading that is given out is to be prolonged now, and takes it as done. What the entry says
// counts, whatever the reader's policy: only who has judged it knows whether it slides, by how much, and until when.
func (r *request) slides(found *reading) bool {
	e := &found.entry
	if e.Idle <= 0 || found.state != fresh || e.Negative != 0 || r.untyped || r.standing == loaded {
		return false
	}
	every := time.Duration(min(e.Idle, longestTTL.Milliseconds())) * time.Millisecond / 4
	return r.c.touched.due(r.name, r.c.redis.clock.now(), every)
}

// slide is slideAll for one request.
func (r *request) slide(ctx context.Context, found reading) (reading, error) {
	readings := []reading{found}
	err := r.c.slideAll(ctx, []*request{r}, readings)
	return readings[0], err
}

// slideAll prolongs what requests have found, all of which slides, by each entry's own time and not beyond its end. Where
// the key holds something else by now, that is the reading. It has got that time too, by which it may end early, or stay in
// Redis for longer; what it is good for is in it. A Redis that does not prolong leaves the reading what it was.
func (c *Cache) slideAll(ctx context.Context, requests []*request, found []reading) error {
	raws, err := send(ctx, c.redis, "slide", func(ctx context.Context) ([]raw, error) {
		now := c.redis.clock.now()
		cmds, err := c.redis.pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range requests {
				e := &found[i].entry
				life := max(min(e.Idle, e.Expiry-now, longestTTL.Milliseconds()), 1)
				p.GetEx(ctx, r.name, time.Duration(life)*time.Millisecond)
			}
			return nil
		})
		if err := classify(err); err != nil {
			return nil, err
		}
		return rawsOf(cmds)
	})
	if err != nil {
		if ctx.Err() == nil {
			c.counts.failed()
		}
		return nil
	}
	for i, r := range requests {
		if string(raws[i].text) == string(found[i].text) {
			continue
		}
		if found[i], err = r.judgeRaw(ctx, raws[i], nil); err != nil { // the stamps at hand are from before
			return err
		}
	}
	return nil
}

// rawsOf are the answers to a pipeline's commands that read.
func rawsOf(cmds []redis.Cmder) (raws []raw, err error) {
	raws = make([]raw, len(cmds))
	for i, cmd := range cmds {
		if raws[i], err = rawOf(cmd.(*redis.StringCmd).Bytes()); err != nil {
			return nil, err
		}
	}
	return raws, nil
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
	found, err := r.judge(ctx, got.text, stamps)
	if r.c.config.Plain {
		found.life = got.life
	}
	return found, err
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
		return reading{state: fresh, text: text, value: value}, nil // memory keeps it only where its life is asked for
	}
	e, value, err := parseEntry(text, c.config.Codec, r.decode)
	switch {
	case errors.Is(err, errForeign):
		return reading{state: foreign, text: text}, nil
	case err != nil:
		return reading{entry: e, text: text}, nil
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
	if !bear(e.Tags, r.p.o.Tags) {
		found.state = absent
		return found, nil
	}
	if valid, err := c.stand(ctx, &e, stamps); err != nil || !valid {
		found.state = absent
		return found, err
	}
	found.value = value
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
	stamps, err := c.withStamps(ctx, stamps, missing)
	return err == nil && e.stands(stamps), err
}

// withStamps returns stamps and those of more tags, which it reads.
func (c *Cache) withStamps(ctx context.Context, stamps map[string]string, more []string) (map[string]string, error) {
	if len(more) == 0 {
		return stamps, nil
	}
	all, err := c.stamps(ctx, more)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, stamps)
	return all, nil
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
