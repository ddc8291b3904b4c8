package lock

import (
	"errors"
	"sync/atomic"
	"time"
)

// Statistics count since New, but for Holding, and do not go back.
type Statistics struct {
	Acquired  uint64 // by Acquire, TryAcquire and Do, and each lock of AcquireAll and DoAll
	Held      uint64 // not acquired, since somebody had the lock till the end: *HeldError
	GuardOpen uint64 // not acquired, since the section before was still in its transaction: ErrGuardOpen
	Failed    uint64 // not acquired for another reason: a server's error, a context that ended first, Close
	Retries   uint64 // attempts of Acquire that failed by a server that was unavailable, and were followed by another one
	Lost      uint64 // acquired locks that were lost before they were released, as far as that was noticed: ErrLost
	Overruns  uint64 // sections of Do and DoAll that went on for Config.Margin after their context had ended
	Holding   int    // locks that are held now

	Wait Durations // from the call to the acquisition, of those that were acquired
	Hold Durations // from the acquisition to the release or the loss
	Mint Durations // of writing tokens to MySQL, with the wait for the section before; also where it failed
}

// Durations tell how long something took.
type Durations struct {
	Count uint64
	Sum   time.Duration
	Below [10]uint64 // how many of Count took no longer than the bound of the same index in [DurationBounds]
}

// DurationBounds are those of Durations: 1 ms, and four times as much each.
func DurationBounds() (bounds [10]time.Duration) {
	for i := range bounds {
		bounds[i] = time.Millisecond << (2 * i)
	}
	return bounds
}

// durations are Durations that grow. The zero value is ready.
type durations struct {
	sum   atomic.Int64
	spans [11]atomic.Uint64 // each without those below; the last is of what no bound covers
}

func (d *durations) add(took time.Duration) {
	i := 0
	for i < len(d.spans)-1 && took > time.Millisecond<<(2*i) {
		i++
	}
	d.spans[i].Add(1)
	d.sum.Add(int64(max(took, 0)))
}

func (d *durations) read() (r Durations) {
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
	acquired, held, guardOpen, failed, retries, lost, overruns atomic.Uint64
	holding                                                    atomic.Int64
	wait, hold, mint                                           durations
}

// answered counts the outcome of an acquisition that was asked for at began.
func (c *counts) answered(held *Held, err error, began time.Time) {
	switch {
	case err == nil:
		c.acquired.Add(1)
		held.use.since = time.Now()
		c.wait.add(held.use.since.Sub(began))
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
	c.hold.add(time.Since(held.use.since))
	if errors.Is(held.cause(), ErrLost) {
		c.lost.Add(1)
	}
}

// vanished counts a loss that nobody noticed before the release.
func (c *counts) vanished(held *Held) {
	if !held.use.since.IsZero() {
		c.lost.Add(1)
	}
}

// A use is what is counted of one acquisition.
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
		Retries: c.retries.Load(), Lost: c.lost.Load(), Overruns: c.overruns.Load(), Holding: int(c.holding.Load()),
		Wait: c.wait.read(), Hold: c.hold.read(), Mint: c.mint.read(),
	}
}
