package cache

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// clockLife is how long a comparison with the clock of Redis is valid.
const clockLife = 30 * time.Second

// A timekeeper is a client that knows the time: package cachetest's, whose clock a test moves.
type timekeeper interface{ Now() time.Time }

// A clock derives the time of Redis from the time that has passed in this process, independent of
// steps of the machine clock. Until Redis has answered, both are assumed to agree.
type clock struct {
	keeper timekeeper // if not nil, it provides the time instead of Redis
	begun  time.Time
	base   atomic.Int64 // time of Redis at begun, in microseconds
	until  atomic.Int64 // when to ask Redis again, as time since begun
	drift  atomic.Int64 // of the machine's clock since begun, when Redis was asked
}

// stepSize limits the difference between the machine clock and the elapsed time. Beyond it, Redis
// is asked again. The cause is a step of the clock or a pause of the whole machine.
const stepSize = time.Second

func (c *clock) start() {
	c.begun = time.Now()
	c.base.Store(c.begun.UnixMicro())
}

// now returns the time of Redis in milliseconds.
func (c *clock) now() int64 {
	if c.keeper != nil {
		return c.keeper.Now().UnixMilli()
	}
	return (c.base.Load() + time.Since(c.begun).Microseconds()) / 1000
}

// due reports whether to ask Redis for its time.
func (c *clock) due() bool {
	if c.keeper != nil {
		return false
	}
	now := time.Now()
	step := c.driftAt(now) - time.Duration(c.drift.Load())
	return now.Sub(c.begun) >= time.Duration(c.until.Load()) || step.Abs() > stepSize
}

// driftAt returns how far the machine's clock has gone beyond the time that has passed.
func (c *clock) driftAt(now time.Time) time.Duration {
	// Round strips the monotonic reading
	return now.Round(0).Sub(c.begun.Round(0)) - now.Sub(c.begun)
}

// heard processes the time of Redis in microseconds, from the answer to a command sent at sent.
func (c *clock) heard(micros int64, sent time.Time) {
	at := sent.Sub(c.begun) + time.Since(sent)/2
	c.base.Store(micros - at.Microseconds())
	c.drift.Store(int64(c.driftAt(time.Now())))
	c.until.Store(int64(at + clockLife))
}

// timeOf returns the time in a lease value or a tag version, in microseconds, or 0.
func timeOf(text string) int64 {
	_, digits, _ := strings.Cut(text, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
