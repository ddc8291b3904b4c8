package history

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

const (
	// SearchLimit bounds each part of a Finding.
	SearchLimit      = 5 * time.Second
	shownSettlements = 20
	shownPending     = 20
	searchedPending  = 500
	shownOrigins     = 20
	shownOld         = 100
	searchedSweeps   = 1000
)

// A Question asks about a key, an entity with an ID, a trace, or a row of cache_outbox.
type Question struct {
	Key, Entity, ID, Trace string
	Row                    uint64
}

// A Finder answers questions.
type Finder struct {
	DB    *session.Sessions // nil: NoDB is the reason
	NoDB  error
	Redis Redis
	Map   *invalidation.Map // of the workers; nil: unknown
	NoMap string            // then the reason, a clause
	Acts  bool              // dead letters can be retried, corrected and discarded beside the answer
	Query Query             // what to read of the journal; its names are those of the question
}

// A Finding is the answer to a question, with what it is made from. Each part has its own error.
type Finding struct {
	Question
	Map     *invalidation.Map // nil: unknown
	Origins []invalidation.Origin
	Cut     bool // there may be other origins
	Reads   []Read

	Past    *Past
	PastErr string
	Failed  error     // what PastErr says
	clock   time.Time // of the database, before Past.Waits were read; zero: unknown

	Pending    []Waiting
	Scheduled  []Waiting     // not due
	Sweeps     []store.Sweep // requests that match the key, or that the rows made
	More       bool          // other rows or sweeps may wait
	PendingErr string

	Entry *Entry // of the key

	Old    []OldEntry // of the key
	OldErr string     // why Old is unknown

	Answer Answer
	Acts   bool // dead letters can be retried, corrected and discarded here

	noMap string
	reach *reach        // of the key
	gap   *clockGap     // nil: unknown
	swept []store.Sweep // all requests
}

// An Entry is the state of a key in Redis.
type Entry struct {
	Now
	TTL      *time.Duration // nil: unknown; below 0: it does not expire
	Lease    *time.Duration // until a reader must have loaded it; nil: no lease, or unknown
	Hold     *time.Duration // until readers may store it again; nil: they may, or it is unknown
	LeaseErr string
}

// Has reports whether Redis has a value under the key.
func (e *Entry) Has() bool { return e.InRedis != nil && *e.InRedis }

// Repeats reports whether a settlement may be of a repeat, which is late on purpose.
func (f *Finding) Repeats(s Settlement) bool {
	return s.Row > 0 && s.WrittenAt != nil && s.ClaimedAt != nil && MayRepeat(f.Map, s.Entity, s.ClaimedAt.Sub(*s.WrittenAt))
}

// Forever reports whether the value does not expire.
func (e *Entry) Forever() bool { return e.TTL != nil && *e.TTL < 0 }

// Waiting returns the first rows that are not settled.
func (f *Finding) Waiting() []Waiting {
	all := slices.Concat(f.Pending, f.Scheduled)
	return all[:min(len(all), shownPending)]
}

// Find reads all parts of an answer in parallel.
func (c *Finder) Find(ctx context.Context, q Question) *Finding {
	f := &Finding{Question: q, Map: c.Map, Acts: c.Acts, noMap: c.NoMap}
	if q.Key != "" {
		if c.Map != nil {
			f.Reads = ReadsOf(c.Map, q.Key)
		}
		f.reach = newReach(c.Map, c.NoMap, q.Key)
		shown := min(len(f.reach.origins), shownOrigins)
		f.Origins, f.Cut = f.reach.origins[:shown], c.Map != nil && !f.reach.all || shown < len(f.reach.origins)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		f.readPending(ctx, c)
		f.readPast(ctx, c) // after it: a row that is settled meanwhile is in one of them
	})
	if q.Key != "" {
		parts.Go(func() { f.Entry, f.gap = c.readEntry(ctx, q.Key), c.readGap(ctx, q.Key) })
		parts.Go(func() { f.readOld(ctx, c) })
	}
	parts.Wait()
	f.pickSweeps()
	f.Answer = f.answer(time.Now())
	return f
}

func (f *Finding) readPast(ctx context.Context, c *Finder) {
	if c.DB == nil {
		f.PastErr = c.NoDB.Error()
		return
	}
	q := c.Query
	q.Key, q.Entity, q.EntityID, q.Trace, q.Row = f.Key, f.Entity, f.ID, f.Trace, f.Row
	if q.Limit = cmp.Or(q.Limit, shownSettlements); f.Row > 0 {
		f.clock, _ = ReadClock(ctx, c.DB)
	}
	past, err := Search(ctx, c.DB, q)
	f.Failed = err
	switch {
	case err != nil && ctx.Err() != nil && len(past.Found) > 0:
		past.More, f.PastErr = true, "older batches were not searched within "+output.Span(SearchLimit)
	case err != nil:
		f.PastErr = session.Explain(err).Error()
		return
	}
	past.AddEvictions(ctx, c.Redis)
	slices.Reverse(past.Found) // the newest first
	f.Past = past
}

// readPending finds rows and sweeps that wait and can reach the key, or belong to the entity or the
// trace.
func (f *Finding) readPending(ctx context.Context, c *Finder) {
	if c.DB == nil {
		f.PendingErr = c.NoDB.Error()
		return
	}
	q := store.PendingQuery{Trace: f.Trace}
	switch {
	case f.Key != "":
		q = f.reach.query()
	case f.Entity != "":
		q.Objects = []store.Object{{Entity: f.Entity, ID: f.ID}}
	}
	rows, more, err := store.Pending(ctx, c.DB, q, searchedPending)
	if err == nil {
		f.swept, err = store.NewSweeps(c.DB).All(ctx, searchedSweeps)
	}
	if err != nil {
		f.PendingErr = session.Explain(err).Error()
		return
	}
	f.More = more || len(f.swept) == searchedSweeps
	for i := range rows {
		w, reaches := Waiting{PendingRow: rows[i]}, true
		if f.Key != "" {
			reaches, w.May = f.reach.of(&rows[i])
		}
		switch {
		case !reaches:
		case w.Scheduled:
			f.Scheduled = append(f.Scheduled, w)
		default:
			f.Pending = append(f.Pending, w)
		}
	}
	slices.SortStableFunc(f.Pending, func(a, b Waiting) int { return cmp.Compare(min(len(a.May), 1), min(len(b.May), 1)) })
}

// pickSweeps picks the sweeps that wait and reach the key, or that the rows found made.
func (f *Finding) pickSweeps() {
	for _, s := range f.swept {
		if f.Key != "" && (s.Name == f.Key || s.Kind == store.SweepPattern && matches(s.Name, f.Key) || s.Kind == store.SweepSet && f.reach.member) ||
			f.Key == "" && f.Past != nil && slices.ContainsFunc(f.Past.Found, func(m Settlement) bool {
				return slices.Contains(m.Patterns, s.Name) || slices.Contains(m.Sets, s.Name)
			}) {
			f.Sweeps = append(f.Sweeps, s)
		}
	}
}

// readOld reads what spot checks and shadow reads found about the key.
func (f *Finding) readOld(ctx context.Context, c *Finder) {
	if c.DB == nil {
		return // the timeline shows why
	}
	var err error
	if f.Old, err = oldOf(ctx, c.DB, f.Key, shownOld); err != nil {
		f.OldErr = session.Explain(err).Error()
	}
}

func (c *Finder) readEntry(ctx context.Context, key string) *Entry {
	e := &Entry{Now: *LookNow(ctx, c.Redis, key)}
	if e.InRedis == nil {
		return e
	}
	_ = c.Redis(func(redis *keyspace.Contents) error {
		ttl := func(name string) *time.Duration {
			left, err := redis.TTL(ctx, name)
			if err != nil {
				e.LeaseErr = err.Error()
				return nil
			}
			return &left
		}
		e.TTL = ttl(key)
		if name, ok := protocol.LeaseKey(key); ok {
			if left := ttl(name); left != nil && *left > 0 {
				e.Lease = left
			}
		}
		if name, ok := protocol.HoldKey(key); ok {
			if left := ttl(name); left != nil && *left > 0 {
				e.Hold = left
			}
		}
		return nil
	})
	return e
}

// MayRepeat reports whether the map repeats rows of an entity within a time after their insert.
func MayRepeat(m *invalidation.Map, entity string, after time.Duration) bool {
	if m == nil {
		return false
	}
	d, _ := m.Describe(entity)
	return slices.ContainsFunc(d.Repeat, func(r time.Duration) bool { return after >= r }) ||
		slices.ContainsFunc(d.As, func(a invalidation.AliasSource) bool { return MayRepeat(m, a.Entity, after) })
}
