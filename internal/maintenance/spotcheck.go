package maintenance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// A SpotBatch is a settled batch.
type SpotBatch struct {
	keyspace.Unlinked
	SettledAt time.Time // by the database's clock
}

// A SpotKey is a key that a batch unlinked.
type SpotKey struct {
	Key, Entity, ID, Trace string
	Row                    uint64
	Hold                   time.Duration
	IsTag                  bool // the key has the version of a tag
}

// A batch is a sampled batch.
type batch struct {
	SpotBatch
	generation int
	// numbers of its checks, for store.Checks
	known, had, stale int
}

// A check is one key of one batch.
type check struct {
	SpotKey
	batch *batch
	looks int
	found SpotResult // of the last look, "" before the first
}

// reading returns the time of the master before the UNLINK.
func (c *check) reading(addr string) (r keyspace.Reading, ok bool) {
	for _, r := range c.batch.Readings {
		if r.Addr == addr {
			return r, true
		}
	}
	return r, false
}

// heldUntil returns until when the tombstone of this batch exists at least.
func (c *check) heldUntil() time.Time { return c.batch.Began.Add(c.Hold - c.Hold/100) }

// evaluate returns the result of a look, and the times of the entry if it is stale. Each condition
// that is not met for certain makes it unknown.
func (c *check) evaluate(s keyspace.Seen, generation int) (SpotResult, *SpotStale) {
	m := s.Master
	if s.Err != nil || generation != c.batch.generation || m.Moving || m.Survived(c.batch.Position.Epoch) < c.batch.Position.N {
		return Unknown, nil
	}
	r, ok := c.reading(m.Addr)
	switch {
	case !ok || m.Micros < r.Micros:
		return Unknown, nil
	case s.Head == "":
		return Absent, nil
	}
	leased, expiry := EntryTimes(s.Head, c.IsTag)
	held := s.Held && m.Answered.Before(c.heldUntil())
	unlinked := r.Micros + uint64(c.batch.Ended.Sub(r.Sent).Microseconds()) // at most
	switch {
	case held || leased != 0 && leased < r.Micros:
		return Found, &SpotStale{
			Key: c.SpotKey.Key, Entity: c.Entity, ID: c.ID, Trace: c.Trace, Row: c.Row, Position: c.batch.Position,
			SettledAt: c.batch.SettledAt, LeasedAt: at(leased), UnlinkedAt: at(r.Micros), SeenAt: at(m.Micros), ExpiresAt: at(expiry),
			Held: held, After: m.Answered.Sub(c.batch.Ended),
		}
	case leased > unlinked && leased <= m.Micros:
		return Fresh, nil
	}
	return Unknown, nil
}

func at(micros uint64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(micros)).UTC()
}

const (
	tick      = time.Second
	lookLimit = 2 * time.Second // of one tick, in Redis
	noteEvery = 2 * time.Second
	// mostUnkept is how many stale entries wait until they can be stored.
	mostUnkept = 100
	// deniedPause is the wait after a denial, each of which is an entry in the ACL log of Redis.
	deniedPause = time.Minute
)

// A SpotChecker checks a sample of keys. Offer is safe for concurrent use; one goroutine calls Run.
type SpotChecker struct {
	Deps
	metrics SpotMetrics
	records SpotRecords

	mu      sync.Mutex
	watch   watch
	sample  sample
	ready   bool      // all masters were seen
	proven  bool      // the account may look at keys
	settled time.Time // of the newest batch, by the database's clock

	counts checkCounts
	noted  time.Time
	denied time.Time   // when Redis last refused a look
	unkept []SpotStale // that could not be stored
	kept   time.Time   // when it was last tried
	repair repairs
}

// NewSpotChecker returns a SpotChecker of rate keys per second; 0: nothing is checked.
func NewSpotChecker(d Deps, rate int, m SpotMetrics, r SpotRecords) *SpotChecker {
	return &SpotChecker{
		Deps: d, metrics: m, records: r, watch: watch{base: time.Now(), masters: map[string]*span{}}, counts: checkCounts{},
		sample: sample{rate: float64(rate), tokens: float64(rate), filled: time.Now()},
		repair: repairs{last: map[string]repair{}, tokens: repairsPerSecond, filled: time.Now()},
	}
}

// Offer takes some keys of a settled batch. pick is called with how many, and returns at most that
// many; it is not called for most batches while many settle.
func (c *SpotChecker) Offer(b SpotBatch, pick func(n int) []SpotKey) {
	if c.sample.rate == 0 || len(b.Readings) == 0 {
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
		c.sample.enqueue(&batch{SpotBatch: b, generation: c.watch.generation}, n, pick(n+spare))
	}
}

// Run looks once per second until ctx ends. Looks that are due later are dropped then.
func (c *SpotChecker) Run(ctx context.Context) {
	if c.sample.rate > 0 {
		sleep.Every(ctx, tick, func(ctx context.Context) { c.tick(ctx, time.Now()) })
	}
}

// tick makes the looks that are due at a time.
func (c *SpotChecker) tick(ctx context.Context, now time.Time) {
	if c.State.InOutage() {
		return
	}
	list, idle := c.dueChecks(now)
	if !idle && time.Since(c.denied) >= deniedPause {
		limited, cancel := context.WithTimeout(ctx, lookLimit)
		c.lookTwice(limited, list)
		cancel()
	}
	if len(c.unkept) > 0 && time.Since(c.kept) >= deniedPause {
		c.keep(ctx, nil)
	}
	if ctx.Err() == nil && time.Since(c.noted) >= noteEvery {
		c.writeCounts(ctx)
	}
}

// dueChecks returns the checks to look at now, and whether there is nothing to do at all. An
// account that may not look, as far as known, is tried with the first look alone.
func (c *SpotChecker) dueChecks(now time.Time) (list []*check, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sample.spend(time.Now())
	idle = c.ready && c.sample.isEmpty()
	most := int(4*c.sample.rate) + 1
	if !c.proven {
		most = 1
	}
	return c.sample.takeDue(now, most), idle
}

// lookTwice looks at keys, and again at those that are stale at first sight: between the answer
// about the beacon and that about the key, another server may have taken over.
func (c *SpotChecker) lookTwice(ctx context.Context, list []*check) {
	seen := c.lookOnce(ctx, list)
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
		c.settle(one, r)
	}
	if len(again) == 0 {
		return
	}
	seen = c.lookOnce(ctx, again)
	var found []SpotStale
	for i, one := range again {
		r, stale := Unknown, (*SpotStale)(nil)
		if seen != nil && !c.State.Heals() {
			r, stale = one.evaluate(seen[i], c.generation())
		}
		if r != Found {
			c.settle(one, r)
			continue
		}
		stale.Repaired = c.unlink(ctx, stale, seen[i].Head)
		if one.found != Found {
			c.metrics.Checked(Found)
		}
		c.counts.countResult(one, Found, stale.Repaired)
		if !stale.Repaired { // a later look may
			c.putBack(one)
		}
		if c.repair.isNew(stale.Key, seen[i].Head, stale.Repaired) {
			c.logStale(stale)
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
	if err := c.records.KeepStale(ctx, found); err != nil {
		c.unkept = found[max(len(found)-mostUnkept, 0):]
		c.Log.Warn("cannot store stale entries; trying again", "error", err, "cure", "docs/accounts.md lists the grants of the worker's account")
	}
}

// lookOnce sends one look, and returns nil if it failed or if nothing is certain now.
func (c *SpotChecker) lookOnce(ctx context.Context, list []*check) []keyspace.Seen {
	asked := make([]keyspace.Asked, len(list))
	for i, one := range list {
		asked[i] = keyspace.Asked{Key: one.SpotKey.Key, Epoch: one.batch.Position.Epoch, Hold: one.Hold > 0}
	}
	c.metrics.Looked(len(asked))
	seen, masters, err := c.Redis.Look(ctx, asked)
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

// settle records the result of a look that found nothing stale. The last look decides, unless an
// earlier one has found a stale entry.
func (c *SpotChecker) settle(one *check, r SpotResult) {
	if one.found == Found {
		return
	}
	more := c.putBack(one)
	c.counts.countResult(one, r, false)
	if !more {
		c.metrics.Checked(r)
	}
}

// putBack puts a check back until its next look, and reports whether there is one. Once times are
// incomparable, there are no further looks.
func (c *SpotChecker) putBack(one *check) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.looks++
	more := one.looks < len(delays) && one.batch.generation == c.watch.generation
	if more {
		c.sample.putBack(one)
	}
	return more
}

// writeCounts writes the counts. The next time repeats what failed.
func (c *SpotChecker) writeCounts(ctx context.Context) {
	c.noted = time.Now()
	c.mu.Lock()
	now := store.MinuteAt(c.settled)
	c.mu.Unlock()
	if err := c.counts.writeMinutes(ctx, c.records, now); err != nil {
		c.Log.Debug("cannot write the results of spot checks", "error", err)
	}
}

// SpotRecords are where results are written.
type SpotRecords interface {
	// NoteChecks writes the results of all checks of the batches that were settled in a minute, in
	// place of the earlier ones. A check counts from its first look on.
	NoteChecks(context.Context, store.Minute, store.Checks) error
	// KeepStale stores stale entries for operators.
	KeepStale(context.Context, []SpotStale) error
}

// SpotMetrics measure checks.
type SpotMetrics interface {
	// Looked counts keys that were looked at. Each check has up to three looks.
	Looked(keys int)
	Checked(SpotResult)
	Repaired()
	// Off sets whether the account of Redis may look at entries, and repair them.
	Off(looks, repairs bool)
}

// A SpotResult is the result of a check.
type SpotResult string

// The results. Results lists them.
const (
	Fresh   SpotResult = "fresh"  // the entry is later than the UNLINK
	Found   SpotResult = "stale"  // it is earlier, or exists during a hold
	Absent  SpotResult = "absent" // there is no entry
	Unknown SpotResult = "unknown"
)

// Results are all results.
var Results = []SpotResult{Fresh, Found, Absent, Unknown}

// A SpotStale is a stale entry.
type SpotStale struct {
	Key, Entity, ID, Trace string
	Row                    uint64
	Position               keyspace.Position // of the batch
	SettledAt              time.Time         // by the database's clock
	LeasedAt               time.Time         // of the entry, by the clock of Redis; zero: not known
	UnlinkedAt             time.Time         // before the UNLINK, by the same clock
	SeenAt                 time.Time         // by the same clock
	ExpiresAt              time.Time         // of the entry; zero: not known
	Held                   bool              // it was there during a hold
	After                  time.Duration
	Repaired               bool
}

// delays are when a check looks, after its batch was settled.
var delays = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// spareFor is how long keys of a batch wait for tokens that later batches do not need.
const spareFor = 10 * time.Second

// A sample is a token bucket with the checks that wait for a look. It holds the tokens of one
// second. Not safe for concurrent use.
type sample struct {
	rate   float64 // per second
	tokens float64
	filled time.Time
	queues [len(delays)][]*check // by the number of looks, the oldest first
	spare  []*check              // that wait for tokens, the oldest first
}

func (s *sample) fill(now time.Time) {
	s.tokens = min(s.tokens+s.rate*now.Sub(s.filled).Seconds(), s.rate)
	s.filled = now
}

// share returns how many keys of a batch to take: a quarter of the tokens. So each of many
// batches gives a key, and a few large ones give more. If tokens are left, spare is how many more
// keys can wait for them.
func (s *sample) share(now time.Time) (n, spare int) {
	if s.fill(now); s.tokens < 1 {
		return 0, 0
	}
	if n = int(s.tokens/4) + 1; s.tokens-float64(n) >= 1 {
		spare = max(int(s.rate*spareFor.Seconds())-len(s.spare), 0)
	}
	return n, spare
}

// enqueue adds the checks of a batch: n of them, and the rest as spare ones.
func (s *sample) enqueue(b *batch, n int, keys []SpotKey) {
	for i, k := range keys {
		one := &check{SpotKey: k, batch: b}
		if i >= n {
			s.spare = append(s.spare, one)
			continue
		}
		s.tokens--
		s.queues[0] = append(s.queues[0], one)
	}
}

// spend adds spare checks for all tokens that are left.
func (s *sample) spend(now time.Time) {
	s.fill(now)
	n := 0
	for ; n < len(s.spare) && s.tokens >= 1; n++ {
		if now.Sub(s.spare[n].batch.Ended) < spareFor {
			s.tokens--
			s.queues[0] = append(s.queues[0], s.spare[n])
		}
	}
	s.spare = slices.Delete(s.spare, 0, n)
}

// takeDue removes and returns the checks that are to look now, at most so many.
func (s *sample) takeDue(now time.Time, most int) (list []*check) {
	for looks := range s.queues {
		queue := s.queues[looks]
		n := 0
		for n < len(queue) && len(list)+n < most && now.Sub(queue[n].batch.Ended) >= delays[looks] {
			n++
		}
		list = append(list, queue[:n]...)
		s.queues[looks] = slices.Delete(queue, 0, n)
	}
	return list
}

// putBack puts checks back until their next look.
func (s *sample) putBack(c *check) { s.queues[c.looks] = append(s.queues[c.looks], c) }

func (s *sample) isEmpty() bool {
	return len(s.spare) == 0 && !slices.ContainsFunc(s.queues[:], func(q []*check) bool { return len(q) > 0 })
}

// checkCounts have the results of the minutes whose checks are not all written yet. One goroutine
// owns it.
type checkCounts map[store.Minute]*minuteChecks

// minuteChecks are the results of a minute.
type minuteChecks struct {
	store.Checks
	changed bool // since they were written
}

// countResult counts the result of a check, in place of that of its last look.
func (t checkCounts) countResult(c *check, r SpotResult, repaired bool) {
	minute := store.MinuteAt(c.batch.SettledAt)
	n := t[minute]
	if n == nil {
		n = &minuteChecks{}
		t[minute] = n
	}
	n.changed = true
	if c.found != "" {
		countCheck(&n.Checks, c.batch, c.found, -1)
	}
	c.found = r
	countCheck(&n.Checks, c.batch, r, 1)
	if repaired {
		n.Repaired++
	}
}

// countCheck adds a check with a result to n, or removes it (by is -1).
func countCheck(n *store.Checks, b *batch, r SpotResult, by int) {
	count := func(checks *uint64) { *checks += uint64(by) }
	// a batch counts from its first check to its last one
	ofBatch := func(checks *int, batches *uint64) {
		if *checks += by; *checks == max(by, 0) {
			count(batches)
		}
	}
	count(&n.Checked)
	switch r {
	case Unknown:
		count(&n.Unknown)
		return
	case Absent:
		count(&n.Absent)
	case Found:
		count(&n.Stale)
		ofBatch(&b.stale, &n.StaleBatches)
		fallthrough
	case Fresh:
		count(&n.WithEntry)
		ofBatch(&b.had, &n.EntryBatches)
	}
	ofBatch(&b.known, &n.Sampled)
}

// writeMinutes writes the minutes that have changed, and drops those whose checks have all ended.
func (t checkCounts) writeMinutes(ctx context.Context, to SpotRecords, now store.Minute) error {
	for minute, n := range t {
		if n.changed {
			if err := to.NoteChecks(ctx, minute, n.Checks); err != nil {
				return err
			}
			n.changed = false
		}
		if minute+3 < now {
			delete(t, minute)
		}
	}
	return nil
}
