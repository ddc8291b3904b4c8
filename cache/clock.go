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

// A clock tells Redis' time from this process' own. The zero clock is right if both agree.
type clock struct {
	keeper timekeeper   // if not nil, what it says counts, and nobody is asked
	offset atomic.Int64 // Redis' time minus ours, in microseconds
	until  atomic.Int64 // our time until which offset is good, in nanoseconds
}

// now is Redis' time in milliseconds.
func (c *clock) now() int64 {
	if c.keeper != nil {
		return c.keeper.Now().UnixMilli()
	}
	return (time.Now().UnixMicro() + c.offset.Load()) / 1000
}

// due reports whether to ask Redis for its time.
func (c *clock) due() bool { return c.keeper == nil && time.Now().UnixNano() >= c.until.Load() }

// heard takes Redis' time in microseconds, as an answer to what was sent at sent.
func (c *clock) heard(micros int64, sent time.Time) {
	ours := sent.Add(time.Since(sent) / 2)
	c.offset.Store(micros - ours.UnixMicro())
	c.until.Store(ours.Add(clockLife).UnixNano())
}

// timeOf is the time in a lease or a stamp, in microseconds, or 0.
func timeOf(text string) int64 {
	_, digits, _ := strings.Cut(text, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
