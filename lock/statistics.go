package lock

import (
	"errors"
	"sync/atomic"
	"time"
)

// Statistics count since New and only grow, except Holding.
type Statistics struct {
	Acquired uint64 // by Acquire, TryAcquire and Do, and each lock of AcquireAll and DoAll
	Held     uint64 // not acquired, because another holder had the lock: *HeldError
	// not acquired, since the section before was still in its transaction: ErrGuardOpen
	GuardOpen uint64
	// not acquired for another reason: a server's error, a context that ended first, Close
	Failed uint64
	// attempts of Acquire that failed by a server that was unavailable, and were followed by
	// another one
	Retries uint64
	// acquired locks that were lost before they were released, as far as that was noticed: ErrLost
	Lost uint64
	// sections of Do and DoAll that continued for Config.Margin after their context had ended
	Overruns uint64
	Holding  int // locks that are held now

	// Unconfirmed counts locks whose release the backend has not confirmed in time. Others wait
	// until the lease ends.
	Unconfirmed uint64

	Wait Durations // from the call to the acquisition, of those that were acquired
	Hold Durations // from the acquisition to the release or the loss
	// writes of tokens to MySQL, including the wait for the previous section, and failed ones
	Mint Durations
}

// Durations is a histogram of durations.
type Durations struct {
	Count uint64
	Sum   time.Duration
	// how many of Count took no longer than the bound of the same index in [DurationBounds]
	Below [10]uint64
}

// DurationBounds returns those of Durations: 1 ms, and four times as much each.
func DurationBounds() (bounds [10]time.Duration) {
	for i := range bounds {
		bounds[i] = time.Millisecond << (2 * i)
	}
	return bounds
}

// durations are Durations that grow. The zero value is ready.
type durations struct {
	sum   atomic.Int64
	spans [11]atomic.Uint64 // each without those below; the last one is above all bounds
}

func (d *durations) observe(took time.Duration) {
	i := 0
	for i < len(d.spans)-1 && took > time.Millisecond<<(2*i) {
		i++
	}
	d.spans[i].Add(1)
	d.sum.Add(int64(max(took, 0)))
}

func (d *durations) snapshot() (r Durations) {
	r.Sum = time.Duration(d.sum.Load())
	for i := range d.spans {
		r.Count += d.spans[i].Load()
		if i < len(r.Below) {
			r.Below[i] = r.Count
		}
	}
	return r
}

// counts are Statistics that grow.
type counts struct {
	acquired, held, guardOpen, failed, retries, lost, overruns, unconfirms atomic.Uint64

	holding          atomic.Int64
	wait, hold, mint durations
}

// answered counts the outcome of an acquisition that was asked for at began.
func (c *counts) answered(held *Held, err error, began time.Time) {
	switch {
	case err == nil:
		c.acquired.Add(1)
		held.use.since = time.Now()
		c.wait.observe(held.use.since.Sub(began))
		c.holding.Add(1)
		if !held.use.state.CompareAndSwap(unused, used) { // it is lost already
			c.over(held)
		}
	case errors.As(err, new(*HeldError)):
		c.held.Add(1)
	case errors.Is(err, ErrGuardOpen):
		c.guardOpen.Add(1)
	default:
		c.failed.Add(1)
	}
}

// ended counts the end of a lock, once. One that no caller has got is not counted.
func (c *counts) ended(held *Held) {
	if held.use.state.Swap(ended) == used {
		c.over(held)
	}
}

func (c *counts) over(held *Held) {
	c.holding.Add(-1)
	c.hold.observe(time.Since(held.use.since))
	if errors.Is(held.cause(), ErrLost) {
		c.lost.Add(1)
	}
}

// vanished counts a loss that was found only at the release.
func (c *counts) vanished(held *Held) {
	if !held.use.since.IsZero() {
		c.lost.Add(1)
	}
}

// unconfirmed counts a release without an answer that confirms it.
func (c *counts) unconfirmed(held *Held) {
	if !held.use.since.IsZero() {
		c.unconfirms.Add(1)
	}
}

// A use holds the figures of one acquisition.
type use struct {
	since time.Time // when a caller got it, by Go's clock, which is cheaper than now; zero: never
	state atomic.Int32
}

const (
	unused int32 = iota // no caller has it yet
	used
	ended
)

// Statistics returns what was counted so far.
func (l *Locker) Statistics() Statistics {
	c := &l.counts
	return Statistics{
		Acquired: c.acquired.Load(), Held: c.held.Load(), GuardOpen: c.guardOpen.Load(), Failed: c.failed.Load(),
		Retries: c.retries.Load(), Lost: c.lost.Load(), Overruns: c.overruns.Load(), Holding: int(c.holding.Load()), Unconfirmed: c.unconfirms.Load(),
		Wait: c.wait.snapshot(), Hold: c.hold.snapshot(), Mint: c.mint.snapshot(),
	}
}
