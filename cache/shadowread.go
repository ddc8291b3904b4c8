package cache

import (
	"bytes"
	"context"
	"reflect"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

// A shadowRead is the check of one value that was read from Redis after the mark since.
type shadowRead struct {
	request *request // its own, with a loader
	entry   entry
	digest  string
	since   mark
	loaded  int64 // when the first load began, in milliseconds by the clock of Redis
}

// check compares the value with that of the loader, and a different one again after a wait.
func (s *shadowRead) check(ctx context.Context) shadowResult {
	r := s.request
	if s.entry.Birth <= 0 || s.since.open == 0 || !r.c.memory.values.nameable(r.key, s.entry.tagNames()) {
		return shadowUnknown
	}
	cached, ok := s.cached()
	if !ok {
		return shadowUnknown
	}
	s.entry.Value = nil // only its memory
	s.loaded = r.c.redis.clock.now()
	first, ok := s.load(ctx)
	switch {
	case !ok:
		return shadowUnknown
	case first.equals(cached):
		return shadowEqual
	}
	// A load that began before the write has lost its lease by then, and a lost subscription shows.
	wait := r.c.redis.alive.lease.get() + silentPeriods*r.c.config.Memory.Period
	if sleep.For(ctx, wait) != nil {
		return shadowUnknown
	}
	again, err := r.read(ctx)
	switch {
	case err != nil:
		return shadowUnknown
	case again.state < fresh || digest(again.text) != s.digest:
		return shadowGone
	}
	second, ok := s.load(ctx)
	switch {
	case !ok:
		return shadowUnknown
	case !second.equals(first):
		return shadowUnstable
	}
	return r.c.memory.named(r.name, s.entry.tagNames(), s.since)
}

// named returns shadowDiffers if no message since the mark can have named a name in Redis or one of
// tags.
func (m *memory) named(name string, tags []string, since mark) shadowResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate.open.Load() == 0 || m.doubted(since) || m.values.log.overrun(since) {
		return shadowUnknown
	}
	if m.values.log.hit(since.at, name) {
		return shadowGone
	}
	for _, tag := range tags {
		if m.values.log.hit(since.at, protocol.StampKey(tag)) {
			return shadowGone
		}
	}
	return shadowDiffers
}

// A shadowValue is a value as a caller gets it from Redis, or that there is none.
type shadowValue struct {
	negative bool
	value    any
	text     []byte // as the codec writes it
}

// equals also compares the values: a codec may write maps in any order.
func (v shadowValue) equals(o shadowValue) bool {
	return v.negative == o.negative && (bytes.Equal(v.text, o.text) || reflect.DeepEqual(v.value, o.value))
}

// cached returns the value of the entry. The caller's own may have changed meanwhile.
func (s *shadowRead) cached() (shadowValue, bool) {
	if s.entry.Negative != 0 {
		return shadowValue{negative: true}, true
	}
	config := s.request.c.config
	value, err := s.entry.open(config.Codec, s.request.decode)
	if err != nil {
		return shadowValue{}, false
	}
	text, err := marshal(config.Codec, value)
	return shadowValue{value: value, text: text}, err == nil
}

// load runs the loader, and returns its value as the entry would have it. It returns false if the
// load does not start, fails, or has a value that is not stored.
func (s *shadowRead) load(ctx context.Context) (shadowValue, bool) {
	c := s.request.c
	if ctx.Err() != nil || c.redis.healthy() != nil || len(c.loaders.slots) == cap(c.loaders.slots) {
		return shadowValue{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.HardTimeout)
	defer cancel()
	fill, l := &Fill{}, loading{key: s.request.key, load: s.request.load}
	c.loaders.run(ctx, fill, &l)
	fill.mu.Lock()
	defer fill.mu.Unlock()
	switch {
	case l.started == 0, ctx.Err() != nil, fill.skip:
		return shadowValue{}, false
	case isNotFound(l.err):
		return shadowValue{negative: true}, true
	case l.err != nil:
		return shadowValue{}, false
	}
	text, err := marshal(c.config.Codec, l.result)
	if err != nil {
		return shadowValue{}, false
	}
	value, err := s.request.decode(c.config.Codec, text)
	if err != nil {
		return shadowValue{}, false
	}
	text, err = marshal(c.config.Codec, value)
	return shadowValue{value: value, text: text}, err == nil
}
