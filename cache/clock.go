package cache

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// clockLife is how long a comparison with Redis' clock is good for.
const clockLife = 30 * time.Second

// A timekeeper is a client that knows the time: package cachetest's, whose clock a test moves.
type timekeeper interface{ Now() time.Time }

// A clock tells Redis' time from the time that has passed in this process, which no step of the machine's own clock moves.
// Until Redis was asked, both are taken to agree.
type clock struct {
	keeper timekeeper // if not nil, what it says counts, and nobody is asked
	begun  time.Time
	base   atomic.Int64 // Redis' time at begun, in microseconds
	until  atomic.Int64 // when Redis is to be asked again, as time since begun
	drift  atomic.Int64 // of the machine's clock since begun, when Redis was asked
}

// stepSize is by how much the machine's clock and the time that has passed disagree after a step, or after a pause of the whole
// machine, in which no time has passed for it.
const stepSize = time.Second

func (c *clock) start() {
	c.begun = time.Now()
	c.base.Store(c.begun.UnixMicro())
}

// now is Redis' time in milliseconds.
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

// driftAt is how far the machine's clock has gone beyond the time that has passed.
func (c *clock) driftAt(now time.Time) time.Duration {
	return now.Round(0).Sub(c.begun.Round(0)) - now.Sub(c.begun) // Round strips the monotonic reading
}

// heard takes Redis' time in microseconds, as an answer to what was sent at sent.
func (c *clock) heard(micros int64, sent time.Time) {
	at := sent.Sub(c.begun) + time.Since(sent)/2
	c.base.Store(micros - at.Microseconds())
	c.drift.Store(int64(c.driftAt(time.Now())))
	c.until.Store(int64(at + clockLife))
}

// timeOf is the time in a lease or a stamp, in microseconds, or 0.
func timeOf(text string) int64 {
	_, digits, _ := strings.Cut(text, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
