package cache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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

// raw is the answer of one round trip for one key.
type raw struct {
	text []byte
	list bool          // the key holds no text
	life time.Duration // of a bare value in memory: see request.asksLife
	err  error         // why Redis refuses to read the key, or a fault
}

// readValue reads the value of a key from Redis, checks it, and extends it if it slides. The error
// means that Redis is unavailable, or comes from the caller's context.
func (r *request) readValue(ctx context.Context) (reading, error) {
	got, stamps, err := r.c.redis.reads.read(ctx, r)
	if err != nil {
		return reading{}, err
	}
	found, err := r.judgeRaw(ctx, got, stamps)
	if err != nil || !r.slides(&found) {
		return found, err
	}
	readings := []reading{found}
	err = requests{r}.slide(ctx, readings)
	return readings[0], err
}

// readAlone sends the request in a round trip of its own, and reads the versions of the tags of its
// policy.
func (r *request) readAlone(ctx context.Context) (raw, map[string]string, error) {
	if len(r.p.o.Tags) == 0 && !r.asksLife() && r.c.redis.alone() {
		text, err := send(ctx, r.c.redis, "read", func(ctx context.Context) ([]byte, error) { return r.c.redis.client.Get(ctx, r.name).Bytes() })
		got := rawOf(text, err)
		return got, nil, got.err
	}
	raws, stamps, err := requests{r}.getValues(ctx)
	if err != nil {
		return raw{}, nil, err
	}
	return raws[0], stamps, nil
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
	if e.Idle <= 0 || found.state != fresh || e.Negative != 0 || r.untyped || r.constraint == loaded {
		return false
	}
	every := time.Duration(min(e.Idle, longestTTL.Milliseconds())) * time.Millisecond / 4
	return r.c.touched.due(r.name, r.c.redis.clock.now(), every)
}

// rawsOf returns the answers to a pipeline's commands that read. The error is the first fault, or
// the first refusal.
func rawsOf(cmds []redis.Cmder) (raws []raw, err error) {
	raws = make([]raw, len(cmds))
	for i, cmd := range cmds {
		raws[i] = rawOf(cmd.(*redis.StringCmd).Bytes())
		if err == nil || classify(err) == nil {
			err = cmp.Or(classify(raws[i].err), err, raws[i].err)
		}
	}
	return raws, err
}

// rawOf tells a value from none, from a key that holds something else, and from an error.
func rawOf(text []byte, err error) raw {
	switch {
	case err == nil:
		return raw{text: text}
	case errors.Is(err, redis.Nil):
		return raw{}
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return raw{list: true}
	}
	return raw{err: err}
}

// judgeRaw calls judge for a value that was read from Redis.
func (r *request) judgeRaw(ctx context.Context, got raw, stamps map[string]string) (reading, error) {
	switch {
	case got.err != nil:
		return reading{}, got.err
	case got.list:
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
	if valid, err := c.versions.stand(ctx, &e, stamps); err != nil || !valid {
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

// The maxima of one pipeline: commands, and bytes of values. Timeout is for each pipeline, and a
// larger one would take longer. A larger value has its own.
const (
	pipelineMost  = 500
	pipelineBytes = 256 << 10
)

// pipelines calls send for each pipeline of items, in their order. A failure does not stop it, since
// one large value may be the reason. Two failures in a row stop it, and so does a pipeline that was
// not sent. It returns the items that it did not reach.
func pipelines[T any](items []T, size func(T) int, send func([]T) error) (rest []T) {
	for failed := 0; len(items) > 0 && failed < 2; {
		n, bytes := 1, size(items[0])
		for n < min(len(items), pipelineMost) && bytes < pipelineBytes {
			if bytes += size(items[n]); bytes <= pipelineBytes {
				n++
			}
		}
		err := send(items[:n])
		items = items[n:]
		switch {
		case err == nil:
			failed = 0
		case errors.As(err, new(unsent)):
			return items
		default:
			failed++
		}
	}
	return items
}

// sizes estimate how many bytes the values of keys have. Safe for concurrent use.
type sizes struct {
	mu    sync.Mutex
	large map[string]int // by the name of the key
	usual int            // the moving average of the others
}

const (
	largeBytes = 1 << 10
	largeMost  = 16_384 // names in sizes.large
)

// of returns the size of the value of a key.
func (s *sizes) of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.large[name], s.usual)
}

// ofAnswer returns the size of the answer to a request for a lease.
func (s *sizes) ofAnswer(c *claim) int {
	if !c.unread {
		return 0
	}
	return s.of(c.names.value)
}

// saw records the values that a pipeline has brought, and reports whether there are any. If it took
// too long, the first missing one may be too large for any pipeline with others.
func (s *sizes) saw(rs requests, cmds []redis.Cmder, late bool) (any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.large == nil || len(s.large) > largeMost {
		s.large = map[string]int{}
	}
	sum, count, missed := 0, 0, false
	for i, r := range rs {
		n, known := len(cmds[i].(*redis.StringCmd).Val()), s.large[r.name]
		any = any || n > 0
		switch {
		case n == 0 && !errors.Is(cmds[i].Err(), redis.Nil):
			if late && !missed {
				s.large[r.name], missed = pipelineBytes, true
			}
			continue
		case n >= largeBytes:
			s.large[r.name] = n
		case known > 0:
			delete(s.large, r.name)
		}
		if known == 0 && n > 0 {
			sum, count = sum+n, count+1
		}
	}
	switch {
	case count > 0 && late:
		s.usual = sum / count
	case count > 0:
		s.usual += (sum/count - s.usual) / 4
	}
	return any
}

// callKey is the key of a context for the commands of one call. Its value reports whether one of them
// has failed.
type callKey struct{}

// asOneCall returns a context for commands of which the breaker counts at most one failure.
func asOneCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, new(atomic.Bool))
}

// failedBefore records that a command has failed, and reports whether another one of its call has.
func failedBefore(ctx context.Context) bool {
	call, _ := ctx.Value(callKey{}).(*atomic.Bool)
	return call != nil && call.Swap(true)
}

// requests are at least one request of the same Cache.
type requests []*request

// tags returns the tags of the policies, each once.
func (rs requests) tags() (tags []string) {
	tags = slices.Clip(rs[0].p.o.Tags)
	for i, r := range rs[1:] {
		if r.p != rs[i].p {
			tags = append(tags, r.p.o.Tags...)
		}
	}
	if len(tags) > len(rs[0].p.o.Tags) {
		tags = slices.Compact(slices.Sorted(slices.Values(tags)))
	}
	return tags
}

// getValues sends one GET for each request, and reads the versions of the tags of their policies.
// The error is a fault; a key that Redis refuses to read has its error in raw.
func (rs requests) getValues(ctx context.Context) ([]raw, map[string]string, error) {
	b := rs[0].c.redis
	tags, lives := rs.tags(), slices.ContainsFunc(rs, (*request).asksLife)
	type answer struct {
		raws   []raw
		stamps map[string]string
		some   bool // values came before the time was over
	}
	got, err := send(ctx, b, "read", func(ctx context.Context) (a answer, err error) {
		sent := time.Now()
		cmds, err := b.pipelined(ctx, askFirst, func(p redis.Pipeliner) error {
			// before the values: a value that ends between them does not get the time of its
			// successor
			if lives {
				for _, r := range rs {
					p.PTTL(ctx, r.name)
				}
			}
			for _, r := range rs {
				p.Get(ctx, r.name)
			}
			readStamps(ctx, p, tags)
			return nil
		})
		err = classify(err)
		var left []redis.Cmder
		if lives && len(cmds) > len(rs) {
			left, cmds = cmds[:len(rs)], cmds[len(rs):]
		}
		if late := errors.Is(err, ErrRedisTimeout) && len(rs) > 1; len(cmds) >= len(rs) && (late || err == nil) {
			a.some = b.sizes.saw(rs, cmds, late) && len(rs) > 1
		}
		if err != nil {
			return a, err
		}
		var refusal error
		if a.raws, refusal = rawsOf(cmds[:len(rs)]); classify(refusal) != nil {
			return a, refusal
		}
		for i, cmd := range left {
			if rs[i].asksLife() {
				a.raws[i].life = rs[i].lifeOf(cmd.(*redis.DurationCmd), sent)
			}
		}
		if a.stamps, err = stampsRead(tags, cmds[len(rs):]); err != nil {
			return a, err
		}
		return a, refusal
	})
	switch {
	case classify(err) == nil:
		return got.raws, got.stamps, nil
	case got.some:
		err = partial{err}
	}
	return nil, nil, err
}

// A partial is the fault of a pipeline that took too long after it had brought values. They are not
// used: other answers of the pipeline are missing.
type partial struct{ error }

func (p partial) Unwrap() error { return p.error }

// slide extends the sliding values that requests have found, each by its own time and not beyond
// its end. If the key has another value by now, that is the reading. It was extended too, so it may
// end early or stay in Redis for longer; its entry has the valid times. If Redis does not extend
// it, the reading does not change.
func (rs requests) slide(ctx context.Context, found []reading) error {
	c := rs[0].c
	raws, err := send(ctx, c.redis, "slide", func(ctx context.Context) ([]raw, error) {
		now := c.redis.clock.now()
		cmds, err := c.redis.pipelined(ctx, askFirst, func(p redis.Pipeliner) error {
			for i, r := range rs {
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
	for i, r := range rs {
		if string(raws[i].text) == string(found[i].text) {
			continue
		}
		// the versions in stamps are older
		if found[i], err = r.judgeRaw(ctx, raws[i], nil); err != nil {
			return err
		}
	}
	return nil
}
