package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reading is the value of a key in Redis, and its state.
type reading struct {
	state  state
	entry  entry
	text   []byte // as stored in Redis
	value  any    // decoded, where the state is fresh, stale or onError
	life   time.Duration
	early  bool // it is due for an early refresh
	passed bool // only this caller cannot use it
	unread bool // Redis gave no answer for it, though for others
}

// A state is the possible use of a reading.
type state int

const (
	absent  state = iota // nothing, or nothing that counts: load
	foreign              // of another format: load, and leave it alone
	onError              // only for a loader that fails
	stale                // until a new one is loaded
	fresh
)

// useless returns the hash that tells a script that the caller cannot use this reading.
func (r reading) useless() string {
	if r.text == nil {
		return ""
	}
	return digest(r.text)
}

// past returns the reading for a caller with a read constraint. It holds only the value to replace.
func (r reading) past() reading {
	if r.state != foreign {
		r.passed, r.state = r.state > foreign, absent
	}
	return r
}

// raw is the result of one round trip.
type raw struct {
	text []byte
	list bool          // the key holds no text
	life time.Duration // of a bare value in memory: see request.asksLife
}

// read reads the value of a key from Redis, checks it, and extends it if it slides. The error means
// that Redis is unavailable, or comes from the caller's context.
func (r *request) read(ctx context.Context) (reading, error) {
	var raw raw
	var stamps map[string]string
	if len(r.p.o.Tags) == 0 && !r.asksLife() && r.c.redis.alone() {
		text, err := send(ctx, r.c.redis, "read", func(ctx context.Context) ([]byte, error) { return r.c.redis.client.Get(ctx, r.name).Bytes() })
		if raw, err = rawOf(text, err); err != nil {
			return reading{}, err
		}
	} else {
		raws, read, err := requests{r}.read(ctx)
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

// asksLife reports whether a read asks for how long a value has to live too. A bare value does not
// say it, and memory must not keep it for longer.
func (r *request) asksLife() bool {
	return r.c.config.Plain && r.c.memory != nil && !r.p.o.SkipMemory && !r.untyped
}

// lifeOf returns how long L1 can keep a bare value, from an answer to a command sent at sent. The
// result is 0 if the server refuses PTTL, and the policy decides if the value has no TTL.
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

// noEnd is the answer of go-redis to PTTL for a key without a TTL.
const noEnd = time.Duration(-1)

// slides reports whether to extend a reading now, and records it as done. The entry decides, for
// every policy: it has the duration and the end.
func (r *request) slides(found *reading) bool {
	e := &found.entry
	if e.Idle <= 0 || found.state != fresh || e.Negative != 0 || r.untyped || r.standing == loaded {
		return false
	}
	every := time.Duration(min(e.Idle, longestTTL.Milliseconds())) * time.Millisecond / 4
	return r.c.touched.due(r.name, r.c.redis.clock.now(), every)
}

// slide implements requests.slide for one request.
func (r *request) slide(ctx context.Context, found reading) (reading, error) {
	readings := []reading{found}
	err := requests{r}.slide(ctx, readings)
	return readings[0], err
}

// rawsOf returns the answers to a pipeline's commands that read.
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

// judgeRaw calls judge for a value that was read from Redis.
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

// judge returns the state of a text. It reads tag versions that are not in stamps.
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
		// L1 keeps it only if its TTL was requested
		return reading{state: fresh, text: text, value: value}, nil
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
	if valid, err := c.stamps.stand(ctx, &e, stamps); err != nil || !valid {
		found.state = absent
		return found, err
	}
	found.value = value
	found.life = time.Duration(e.Expiry-now) * time.Millisecond
	if e.Idle > 0 {
		found.life = min(found.life, time.Duration(e.Idle)*time.Millisecond/4)
	}
	found.early = found.state == fresh && e.Negative == 0 && early(found.life, r.eager, e.Cost)
	return found, nil
}

// eagerness draws how early one call by the policy refreshes a value: XFetch refreshes it if the
// value has less left than this times the duration of its load. 0: never.
func (c *Cache) eagerness(p *Policy) float64 {
	if p.o.EarlyRefresh == 0 {
		return 0
	}
	return p.o.EarlyRefresh * c.luck()
}

// early reports whether to refresh a value that has so much time left, and was loaded in so many
// milliseconds.
func early(left time.Duration, eagerness float64, cost int64) bool {
	return eagerness > 0 && float64(left) <= eagerness*float64(cost)*float64(time.Millisecond)
}

// allTags returns the tags of the policy and of an earlier entry: the loader is likely to name the
// latter again.
func (r *request) allTags(earlier *entry) []string {
	if len(earlier.Tags) == 0 {
		return r.p.o.Tags
	}
	return slices.Compact(slices.Sorted(slices.Values(append(earlier.tagNames(), r.p.o.Tags...))))
}
