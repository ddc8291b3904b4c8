package maintenance

import (
	"context"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

const (
	tick      = time.Second
	lookLimit = 2 * time.Second // of one tick, in Redis
	noteEvery = 2 * time.Second
	// mostUnkept is how many stale entries wait until they can be stored.
	mostUnkept = 100
	// deniedPause is the wait after a denial, each of which is an entry in the ACL log of Redis.
	deniedPause = time.Minute
)

// A Checker checks a sample of keys. Offer is safe for concurrent use; one goroutine calls Run.
type SpotChecker struct {
	cfg SpotConfig

	mu      sync.Mutex
	watch   watch
	sample  sample
	ready   bool      // all masters were seen
	proven  bool      // the account may look at keys
	settled time.Time // of the newest batch, by the database's clock

	tally  tally
	noted  time.Time
	denied time.Time   // when Redis last refused a look
	unkept []SpotStale // that could not be stored
	kept   time.Time   // when it was last tried
	repair repairs
}

// NewSpotChecker returns a Checker. Without a rate it does nothing.
func NewSpotChecker(cfg SpotConfig) *SpotChecker {
	return &SpotChecker{
		cfg: cfg, watch: newWatch(), sample: sample{rate: float64(cfg.Rate), tokens: float64(cfg.Rate), filled: time.Now()}, tally: newTally(), repair: newRepairs(),
	}
}

// Offer takes some keys of a settled batch. pick is called with how many, and returns at most that
// many; it is not called for most batches while many settle.
func (c *SpotChecker) Offer(b SpotBatch, pick func(n int) []SpotKey) {
	if c.cfg.Rate == 0 || len(b.Readings) == 0 {
		return
	}
	b.Failures = nil // only their memory
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range b.Readings {
		c.watch.saw(r)
	}
	c.settled = b.SettledAt
	if n, spare := c.sample.share(time.Now()); n > 0 && c.ready {
		c.sample.add(&batch{SpotBatch: b, generation: c.watch.generation}, n, pick(n+spare))
	}
}

// Run looks once per second until ctx ends. Looks that are due later are dropped then.
func (c *SpotChecker) Run(ctx context.Context) {
	if c.cfg.Rate == 0 {
		return
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		c.tick(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// tick makes the looks that are due at a time.
func (c *SpotChecker) tick(ctx context.Context, now time.Time) {
	if c.cfg.Resting() {
		return
	}
	list, idle := c.due(now)
	if !idle && time.Since(c.denied) >= deniedPause {
		limited, cancel := context.WithTimeout(ctx, lookLimit)
		c.look(limited, list)
		cancel()
	}
	if len(c.unkept) > 0 && time.Since(c.kept) >= deniedPause {
		c.keep(ctx, nil)
	}
	if ctx.Err() == nil && time.Since(c.noted) >= noteEvery {
		c.note(ctx)
	}
}

// due returns the checks to look at now, and whether there is nothing to do at all. An account that
// may not look, as far as known, is tried with the first look alone.
func (c *SpotChecker) due(now time.Time) (list []*check, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sample.spend(time.Now())
	idle = c.ready && c.sample.isEmpty()
	most := int(4*c.sample.rate) + 1
	if !c.proven {
		most = 1
	}
	return c.sample.due(now, most), idle
}

// look looks at keys, and again at those that are stale at first sight: between the answer about
// the beacon and that about the key, another server may have taken over.
func (c *SpotChecker) look(ctx context.Context, list []*check) {
	seen := c.ask(ctx, list)
	var again []*check
	for i, one := range list {
		r := Unknown
		if seen != nil {
			r, _ = one.evaluate(seen[i], c.generation())
		}
		if r == Found {
			again = append(again, one)
			continue
		}
		c.end(one, r)
	}
	if len(again) == 0 {
		return
	}
	seen = c.ask(ctx, again)
	var found []SpotStale
	for i, one := range again {
		r, stale := Unknown, (*SpotStale)(nil)
		if seen != nil && !c.cfg.Healing() {
			r, stale = one.evaluate(seen[i], c.generation())
		}
		if r != Found {
			c.end(one, r)
			continue
		}
		stale.Repaired = c.unlink(ctx, stale, seen[i].Head)
		if one.found != Found {
			c.cfg.Metrics.Checked(Found)
		}
		c.tally.set(one, Found, stale.Repaired)
		if !stale.Repaired { // a later look may
			c.wait(one)
		}
		if c.repair.isNew(stale.Key, seen[i].Head, stale.Repaired) {
			c.report(stale)
			found = append(found, *stale)
		}
	}
	c.keep(ctx, found)
}

// keep stores stale entries, together with those that could not be stored before.
func (c *SpotChecker) keep(ctx context.Context, found []SpotStale) {
	if found = append(c.unkept, found...); len(found) == 0 {
		return
	}
	c.unkept, c.kept = nil, time.Now()
	if err := c.cfg.Keep(ctx, found); err != nil {
		c.unkept = found[max(len(found)-mostUnkept, 0):]
		c.cfg.Log.Warn("cannot store stale entries; trying again", "error", err, "cure", "docs/accounts.md lists the grants of the worker's account")
	}
}

// ask sends one look, and returns nil if it failed or if nothing is certain now.
func (c *SpotChecker) ask(ctx context.Context, list []*check) []keyspace.Seen {
	asked := make([]keyspace.Asked, len(list))
	for i, one := range list {
		asked[i] = keyspace.Asked{Key: one.SpotKey.Key, Epoch: one.batch.Position.Epoch, Hold: one.Hold > 0}
	}
	c.cfg.Metrics.Looked(len(asked))
	seen, masters, err := c.cfg.Redis.Look(ctx, asked)
	for i := range seen {
		if keyspace.IsDenied(seen[i].Err) {
			err = seen[i].Err
		}
	}
	c.mu.Lock()
	c.proven = c.proven || err == nil && len(asked) > 0
	c.mu.Unlock()
	c.mayLook(err)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range masters {
		c.watch.sawMaster(m)
	}
	c.ready = true
	return seen
}

func (c *SpotChecker) generation() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch.generation
}

// end records the result of a look that found nothing stale. The last look decides, unless an
// earlier one has found a stale entry.
func (c *SpotChecker) end(one *check, r SpotResult) {
	if one.found == Found {
		return
	}
	more := c.wait(one)
	c.tally.set(one, r, false)
	if !more {
		c.cfg.Metrics.Checked(r)
	}
}

// wait puts a check back until its next look, and reports whether there is one. Once times are
// incomparable, there are no further looks.
func (c *SpotChecker) wait(one *check) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.looks++
	more := one.looks < len(delays) && one.batch.generation == c.watch.generation
	if more {
		c.sample.wait(one)
	}
	return more
}

// note writes the counts. The next time repeats what failed.
func (c *SpotChecker) note(ctx context.Context) {
	c.noted = time.Now()
	c.mu.Lock()
	now := store.MinuteAt(c.settled)
	c.mu.Unlock()
	if err := c.tally.write(ctx, c.cfg.Note, now); err != nil {
		c.cfg.Log.Debug("cannot write the results of spot checks", "error", err)
	}
}
