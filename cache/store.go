package cache

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// store fills Redis and the memory with an outcome where that is allowed, and sets whether it was
// accepted. It reports whether the lease is used up.
func (j *job) store(ctx context.Context, fill *Fill, o *outcome, cost time.Duration) bool {
	if j.lease == "" {
		return true
	}
	stored, err := j.fillWith(ctx, fill, o, cost)
	if err != nil {
		j.request.c.counts.failed()
	}
	return stored
}

// A parcel is the arguments of a fill.
type parcel struct {
	claim *claim
	entry entry
	text  []byte
	life  time.Duration
}

// pack makes the parcel of an outcome. An empty text means that nothing may be stored.
func (j *job) pack(ctx context.Context, fill *Fill, o *outcome, cost time.Duration) (p parcel, err error) {
	p.claim, j.superseded = &j.claim, o.err == nil || o.negative
	p.entry, p.life = j.entry(fill, o, cost)
	if p.life <= 0 {
		return parcel{}, nil
	}
	if stamped, err := j.stampedBy(ctx, fill, &p.entry); !stamped {
		return parcel{}, err
	}
	if p.text, err = j.text(&p.entry, o); err != nil {
		return parcel{}, err
	}
	// Callers that come from now on have to ask Redis.
	if j.request.c.flights.seal(j.fl) || j.request.c.memory.doubted(j.since) {
		return parcel{}, nil
	}
	return p, nil
}

// fillWith implements store under a lease.
func (j *job) fillWith(ctx context.Context, fill *Fill, o *outcome, cost time.Duration) (stored bool, err error) {
	p, err := j.pack(ctx, fill, o, cost)
	if err != nil || p.text == nil {
		return false, err
	}
	var f filling
	if j.send != nil {
		f = j.send(ctx, p)
	} else {
		f = j.request.c.leases.fill(ctx, []parcel{p})[0]
	}
	if f.err != nil {
		return false, f.err
	}
	j.filled(p, f, o)
	return f.accepted, nil
}

// filled records the answer of Redis to a parcel.
func (j *job) filled(p parcel, f filling, o *outcome) {
	j.request.c.counts.filled(f.accepted)
	o.tags = p.entry.Tags
	if o.accepted = f.accepted && f.same; !o.accepted || o.negative {
		return
	}
	until := time.Duration(p.entry.Expiry-j.request.c.redis.clock.now()) * time.Millisecond
	if p.entry.Idle > 0 {
		until = min(until, p.life/4)
	}
	o.fresh = until
	j.request.keep(reading{value: o.value, entry: p.entry, life: until}, j.since)
}

// entry returns the entry to store, without its value, and its life. A life of zero means that
// nothing is stored.
func (j *job) entry(fill *Fill, o *outcome, cost time.Duration) (e entry, life time.Duration) {
	fill.mu.Lock()
	defer fill.mu.Unlock()
	opt := j.request.p.o
	if j.request.c.config.Plain { // the defaults have no room; what was asked for was refused
		opt.Stale, opt.NegativeTTL = 0, 0
	}
	ttl, jitter := opt.TTL, j.request.p.jitter(j.request.c.config)*(2*rand.Float64()-1)
	if fill.ttl > 0 && !o.negative { // the value itself ends then, as a token does
		ttl, jitter, opt.Stale, opt.StaleOnError = fill.ttl, -math.Abs(jitter), 0, 0
	}
	if o.negative {
		ttl, opt.Stale, opt.StaleOnError, opt.Sliding, e.Negative = opt.NegativeTTL, 0, 0, false, 1
	}
	if fill.skip || ttl <= 0 || o.err != nil && !o.negative {
		return e, 0
	}
	ttl = max(time.Duration(float64(ttl)*(1+jitter)), time.Millisecond)
	now := j.request.c.redis.clock.now()
	e.Birth, e.Codec, e.Cost = timeOf(j.lease), j.request.c.config.Codec.Name(), cost.Milliseconds()
	e.Expiry = now + ttl.Milliseconds()
	life = ttl + max(opt.Stale, opt.StaleOnError)
	if opt.Sliding {
		longest := time.Duration(float64(opt.SlidingMax) * (1 - j.request.p.jitter(j.request.c.config)*rand.Float64()))
		e.Expiry, e.Idle = now+longest.Milliseconds(), ttl.Milliseconds()
		return e, min(ttl, longest)
	}
	if opt.Stale > 0 {
		e.Stale = e.Expiry + opt.Stale.Milliseconds()
	}
	if opt.StaleOnError > 0 {
		e.OnError = e.Expiry + opt.StaleOnError.Milliseconds()
	}
	return e, life
}

// stampedBy adds tag versions to the entry, for the tags of the policy and of the loader. It
// returns false if one has a tombstone, or if it is unknown whether one has changed since the load
// began. It returns the error if Redis does not give the versions.
func (j *job) stampedBy(ctx context.Context, fill *Fill, e *entry) (bool, error) {
	fill.mu.Lock()
	late := slices.DeleteFunc(slices.Clone(fill.tags), func(tag string) bool { return j.stamps[tag] != "" })
	wanted := append(slices.Clone(fill.tags), j.request.p.o.Tags...)
	ttl := max(fill.ttl, j.request.p.o.TTL)
	fill.mu.Unlock()
	if len(wanted) == 0 {
		return true, nil
	}
	if j.request.c.config.Plain || !stampable(late) {
		return false, nil // a bare value has no room for tag versions
	}
	longest := max(ttl, j.request.p.o.SlidingMax) + j.request.p.o.Stale + j.request.p.o.StaleOnError
	j.readLate(ctx, fill, late, longest+longest/4)
	e.Tags = make(map[string]string, len(wanted))
	for _, tag := range wanted {
		stamp, early := j.stamps[tag]
		if !early {
			stamp = fill.late[tag]
		}
		if e.Tags[tag] = stamp; stamp == "" {
			return false, fill.unread
		}
	}
	return true, nil
}

// readLate reads the versions of tags that only the loader names, once for all keys of its load.
func (j *job) readLate(ctx context.Context, fill *Fill, tags []string, life time.Duration) {
	tags = slices.DeleteFunc(tags, func(tag string) bool { _, ok := fill.late[tag]; return ok })
	if len(tags) == 0 {
		return
	}
	stamps, err := j.request.c.stamps.make(ctx, tags, life)
	j.request.c.redis.writes.note(false, err)
	usable := err == nil && j.request.c.seen.saw(stamps, j.started, j.request.c.loaders.events.Load())
	if fill.late == nil {
		fill.late = make(map[string]string, len(tags))
	}
	fill.unread = err
	for _, tag := range tags {
		if fill.late[tag] = ""; usable {
			fill.late[tag] = stamps[tag]
		}
	}
}

// text returns the entry in its stored form.
func (j *job) text(e *entry, o *outcome) ([]byte, error) {
	config := &j.request.c.config
	if config.Plain {
		return marshal(config.Codec, o.value)
	}
	e.Value = []byte("null")
	if !o.negative {
		if err := e.encode(config.Codec, config.CompressAbove, config.RawValues, o.value); err != nil {
			return nil, err
		}
	}
	return e.appendTo(make([]byte, 0, len(e.Value)+96)), nil
}
