package cache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Policy sets for how long and how a value is kept. Create it once and use it for many calls: see
// NewPolicy. It is immutable and safe for concurrent use.
type Policy struct {
	o Options
	// plain policies ask for nothing that needs more than the bare value.
	plain bool
	// after is asked before anything is given out, or nil.
	after Checker
	// read is the entry of the map's section reads that the policy belongs to, or nil.
	read *ReadEntry
}

// Options configure a Policy.
type Options struct {
	// TTL is how long a value is fresh, at least a millisecond. Each value gets up to Jitter more
	// or less.
	TTL time.Duration

	// Jitter is by how much TTL varies at most, either way, below 1. Zero: Config.Jitter.
	Jitter float64

	// Stale is how long after its TTL a value is still given out, while one caller loads a new one
	// in the background. Only expiry makes a value stale in this sense: an invalidated one is never
	// given out. Zero: a tenth of TTL. A negative one turns it off.
	Stale time.Duration

	// StaleOnError is how long after its TTL a value is given out when the loader fails, or takes
	// longer than Config.SoftTimeout. Zero: never.
	StaleOnError time.Duration

	// NegativeTTL is how long it is remembered that a loader returned ErrNotFound. Zero: 120 s or
	// TTL, whichever is shorter. A negative one turns it off.
	NegativeTTL time.Duration

	// Tags name the dependencies of the value: invalidating one invalidates the value. Callers of
	// one key should use the same tags: a value that was stored without one of them is loaded again
	// and replaced. A value with a tag that is not UTF-8 is loaded and not stored. See also
	// Fill.Tag.
	Tags []string

	// Sliding extends a stored value by TTL when it is read from Redis, at most once per TTL/4,
	// until it is SlidingMax old. The extension costs that read a second round trip. It cannot be
	// combined with Stale and StaleOnError. The settings of the writer apply to all readers, with
	// any policy.
	Sliding bool
	// SlidingMax is the longest life of a sliding value, at least TTL. A value's own is up to
	// Jitter less.
	SlidingMax time.Duration

	// EarlyRefresh is the beta of XFetch, probabilistic early refresh (Vattani et al., 2015), which
	// prevents a cache stampede. Callers, including those that find it in L1, load a new value in
	// the background shortly before the old one expires. The probability for each call is
	// exp(-left / (beta * duration of the load)). 1 is the usual value; larger values refresh
	// earlier. Zero turns it off.
	EarlyRefresh float64

	// SkipMemory keeps the value out of L1.
	SkipMemory bool
}

const (
	// negativeTTL is the default of Options.NegativeTTL.
	negativeTTL = 120 * time.Second
	// longestTTL bounds every time: Redis refuses what overflows, and no cached value is right for
	// a year.
	longestTTL = 365 * 24 * time.Hour
)

// The tiers: how often a kind of data changes.
var (
	Static    = MustPolicy(Options{TTL: 24 * time.Hour})
	Moderate  = MustPolicy(Options{TTL: 30 * time.Minute})
	Volatile  = MustPolicy(Options{TTL: 5 * time.Minute})
	Ephemeral = MustPolicy(Options{TTL: time.Minute})
)

// For returns the policy of a TTL alone. It panics where NewPolicy fails.
func For(ttl time.Duration) *Policy { return MustPolicy(Options{TTL: ttl}) }

// Sliding returns the policy of a value that lives for ttl after it was last read, but never longer
// than longest. It panics where NewPolicy fails.
func Sliding(ttl, longest time.Duration) *Policy {
	return MustPolicy(Options{TTL: ttl, Sliding: true, SlidingMax: longest})
}

// MustPolicy is like NewPolicy for package variables: it panics if NewPolicy returns an error.
func MustPolicy(o Options) *Policy {
	p, err := NewPolicy(o)
	if err != nil {
		panic(err)
	}
	return p
}

// NewPolicy makes a Policy. The error names every option at fault.
func NewPolicy(o Options) (*Policy, error) {
	var faults rules
	for name, d := range map[string]time.Duration{"TTL": o.TTL, "Stale": o.Stale, "StaleOnError": o.StaleOnError, "NegativeTTL": o.NegativeTTL, "SlidingMax": o.SlidingMax} {
		faults.refuseIf(d > longestTTL, "%s is %v, wanted %v at most", name, d, longestTTL)
	}
	faults.refuseIf(o.TTL < time.Millisecond, "TTL is %v, wanted a millisecond at least", o.TTL)
	faults.refuseIf(o.StaleOnError < 0, "StaleOnError is %v, wanted none or more", o.StaleOnError)
	faults.refuseIf(!(o.EarlyRefresh >= 0) || math.IsInf(o.EarlyRefresh, 1), "EarlyRefresh is %v, wanted none or more", o.EarlyRefresh)
	faults.refuseIf(o.Sliding && o.SlidingMax < o.TTL, "SlidingMax is %v, wanted TTL (%v) at least", o.SlidingMax, o.TTL)
	faults.refuseIf(o.Sliding && (o.Stale > 0 || o.StaleOnError > 0 || o.EarlyRefresh > 0), "Sliding excludes Stale, StaleOnError and EarlyRefresh")
	faults.refuseIf(!o.Sliding && o.SlidingMax != 0, "SlidingMax is %v without Sliding", o.SlidingMax)
	faults.refuseIf(!(o.Jitter >= 0 && o.Jitter < 1), "Jitter is %v, wanted 0 or more, below 1", o.Jitter)
	faults.refuseIf(slices.Contains(o.Tags, ""), "Tags has an empty one")
	if len(faults) > 0 {
		return nil, fmt.Errorf("make policy: %w", errors.Join(faults...))
	}
	p := &Policy{plain: o.Stale <= 0 && o.StaleOnError == 0 && o.NegativeTTL <= 0 && len(o.Tags) == 0 && !o.Sliding && o.EarlyRefresh == 0}
	switch {
	case o.Sliding, o.Stale < 0:
		o.Stale = 0
	case o.Stale == 0:
		o.Stale = o.TTL / 10
	}
	switch {
	case o.NegativeTTL < 0:
		o.NegativeTTL = 0
	case o.NegativeTTL == 0:
		o.NegativeTTL = min(negativeTTL, o.TTL)
	}
	o.Tags = slices.Compact(slices.Sorted(slices.Values(o.Tags)))
	p.o = o
	return p, nil
}

// Tagged returns a copy of the policy with more tags. A nil policy is Config.Policy. It panics if a
// tag is empty.
func (p *Policy) Tagged(tags ...string) *Policy {
	if slices.Contains(tags, "") {
		panic("cache: an empty tag")
	}
	with := p.copied()
	with.o.Tags = slices.Compact(slices.Sorted(slices.Values(slices.Concat(with.o.Tags, tags))))
	with.plain = with.plain && len(with.o.Tags) == 0
	return with
}

// on returns what is meant by a policy that is nil, or was made of a nil one, where that is
// another.
func (p *Policy) on(other *Policy) *Policy {
	switch {
	case p == nil:
		return other
	case p.o.TTL != 0:
		return p
	}
	return other.Tagged(p.o.Tags...).After(p.after)
}

// copied returns a copy to change. That of nil means nothing by itself: see on.
func (p *Policy) copied() *Policy {
	if p == nil {
		return &Policy{}
	}
	with := *p
	return &with
}

// TTL returns Options.TTL. It returns 0 for a policy derived from nil, since the TTL of
// Config.Policy applies there.
func (p *Policy) TTL() time.Duration {
	if p == nil {
		return 0
	}
	return p.o.TTL
}

// jitter returns by how much a TTL varies, given that of the Cache.
func (p *Policy) jitter(config Config) float64 {
	return cmp.Or(p.o.Jitter, config.Jitter)
}
