package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/sweeps"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

const (
	searchLimit      = 5 * time.Second // of each part
	shownSettlements = 20
	shownPending     = 20
	searchedPending  = 500
	shownOrigins     = 20
	shownNames       = 10 // of each settlement
	searchedSweeps   = 1000
)

// A finding is the answer to a question. Each part has its own error.
type finding struct {
	*question
	Map     *invalidation.Map // nil: unknown
	Origins []invalidation.Origin
	Cut     bool // there may be other origins
	Reads   []history.Read

	Past    *history.Past
	PastErr string
	clock   time.Time // of the database, before Past.Waits were read; zero: unknown

	Pending    []waiting
	Scheduled  []waiting      // not due
	Sweeps     []sweeps.Sweep // requests that match the key, or that the rows made
	More       bool           // other rows or sweeps may wait
	PendingErr string

	Entry *entry // of the key

	Old    []foundEntry // of the key
	OldErr string       // why Old is unknown

	Answer answer
	Acts   bool // dead letters can be retried, corrected and discarded here

	reach *reach         // of the key
	gap   *clockGap      // nil: unknown
	swept []sweeps.Sweep // all requests
}

// An entry is the state of a key in Redis.
type entry struct {
	history.Now
	TTL      *time.Duration // nil: unknown; below 0: it does not expire
	Lease    *time.Duration // until a reader must have loaded it; nil: no lease, or unknown
	Hold     *time.Duration // until readers may store it again; nil: they may, or it is unknown
	LeaseErr string
}

// Has reports whether Redis has a value under the key.
func (e *entry) Has() bool { return e.InRedis != nil && *e.InRedis }

// Repeats reports whether a settlement may be of a repeat, which is late on purpose.
func (f *finding) Repeats(s history.Settlement) bool {
	return s.Row > 0 && s.WrittenAt != nil && s.ClaimedAt != nil && mayRepeat(f.Map, s.Entity, s.ClaimedAt.Sub(*s.WrittenAt))
}

// Forever reports whether the value does not expire.
func (e *entry) Forever() bool { return e.TTL != nil && *e.TTL < 0 }

// Waiting returns the first rows that are not settled.
func (f *finding) Waiting() []waiting {
	all := slices.Concat(f.Pending, f.Scheduled)
	return all[:min(len(all), shownPending)]
}

// search serves the answer to a question, and the boxes for others.
func (c *Console) search(w http.ResponseWriter, r *http.Request) {
	m := c.cfg.runningMap()
	data := struct {
		Find    *finding
		Explain *explanation
		Map     *invalidation.Map
		Again   string // the address of the answer, if that takes longer
	}{Map: m, Explain: explain(m, r.URL.Query())}
	if q := ask(r.URL.Query(), m); q != nil {
		if q.As == asLetter {
			http.Redirect(w, r, fmt.Sprintf("%s/dead?id=%d", c.cfg.Prefix, q.Row), http.StatusSeeOther)
			return
		}
		limit := firstWait
		if r.URL.Query().Has("wait") {
			limit = searchLimit
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if data.Find = c.find(ctx, q, m); ctx.Err() != nil && limit == firstWait {
			data.Find, data.Again = nil, "/search?"+r.URL.Query().Encode()+"&wait=1"
		}
		if data.Explain == nil && q.Entity != "" {
			data.Explain = explain(m, url.Values{"entity": {q.Entity}, "id": {q.ID}})
		}
	}
	c.write(w, r, http.StatusOK, "search", data)
}

// find reads all parts of an answer in parallel.
func (c *Console) find(ctx context.Context, q *question, m *invalidation.Map) *finding {
	f := &finding{question: q, Map: m, Acts: c.acts.onDead()}
	if m != nil && q.Key != "" {
		f.Reads = history.ReadsOf(m, q.Key)
	}
	if q.Key != "" {
		f.reach = newReach(m, q.Key)
		shown := min(len(f.reach.origins), shownOrigins)
		f.Origins, f.Cut = f.reach.origins[:shown], m != nil && !f.reach.all || shown < len(f.reach.origins)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		f.readPending(ctx, c)
		f.readPast(ctx, c) // after it: a row that is settled meanwhile is in one of them
	})
	if q.Key != "" {
		parts.Go(func() { f.Entry, f.gap = c.readEntry(ctx, q.Key), readGap(ctx, c, q.Key) })
		parts.Go(func() { f.readOld(ctx, c) })
	}
	parts.Wait()
	f.pickSweeps()
	f.Answer = f.answer(time.Now())
	return f
}

// inRedis calls ask with the Redis of the console: a history.Redis.
func (c *Console) inRedis(ask func(*keyspace.Contents) error) error {
	if c.redis == nil {
		return errors.New("the console has no Redis account of an operator; set --console-redis-url")
	}
	return ask(c.redis.Contents)
}

func (f *finding) readPast(ctx context.Context, c *Console) {
	if c.db == nil {
		f.PastErr = errNoAccount.Error()
		return
	}
	q := history.Query{JournalQuery: journal.JournalQuery{Key: f.Key, Entity: f.Entity, EntityID: f.ID, Trace: f.Trace, Row: f.Row}, Limit: shownSettlements}
	if f.Row > 0 {
		f.clock, _ = readClock(ctx, c.db)
	}
	past, err := history.Search(ctx, c.db, q)
	switch {
	case err != nil && ctx.Err() != nil && len(past.Found) > 0:
		past.More, f.PastErr = true, "older batches were not searched within "+span(searchLimit)
	case err != nil:
		f.PastErr = reason(err)
		return
	}
	past.AddEvictions(ctx, c.inRedis)
	slices.Reverse(past.Found) // the newest first
	f.Past = past
}

// readPending finds rows and sweeps that wait and can reach the key, or belong to the entity or the
// trace.
func (f *finding) readPending(ctx context.Context, c *Console) {
	if c.db == nil {
		f.PendingErr = errNoAccount.Error()
		return
	}
	q := operate.PendingQuery{Trace: f.Trace}
	switch {
	case f.Key != "":
		q = f.reach.query()
	case f.Entity != "":
		q.Objects = []operate.Object{{Entity: f.Entity, ID: f.ID}}
	}
	rows, more, err := operate.Pending(ctx, c.db, q, searchedPending)
	if err == nil {
		f.swept, err = sweeps.New(c.db).All(ctx, searchedSweeps)
	}
	if err != nil {
		f.PendingErr = reason(err)
		return
	}
	f.More = more || len(f.swept) == searchedSweeps
	for i := range rows {
		w, reaches := waiting{PendingRow: rows[i]}, true
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
	slices.SortStableFunc(f.Pending, func(a, b waiting) int { return cmp.Compare(min(len(a.May), 1), min(len(b.May), 1)) })
}

// pickSweeps picks the sweeps that wait and reach the key, or that the rows found made.
func (f *finding) pickSweeps() {
	for _, s := range f.swept {
		if f.Key != "" && (s.Name == f.Key || s.Kind == sweeps.SweepPattern && matches(s.Name, f.Key) || s.Kind == sweeps.SweepSet && f.reach.member) ||
			f.Key == "" && f.Past != nil && slices.ContainsFunc(f.Past.Found, func(m history.Settlement) bool {
				return slices.Contains(m.Patterns, s.Name) || slices.Contains(m.Sets, s.Name)
			}) {
			f.Sweeps = append(f.Sweeps, s)
		}
	}
}

// readOld reads what spot checks and shadow reads found about the key.
func (f *finding) readOld(ctx context.Context, c *Console) {
	if c.db == nil {
		return // the timeline shows why
	}
	var err error
	if f.Old, err = foundOf(ctx, c.db, f.Key); err != nil {
		f.OldErr = reason(err)
	}
}

func (c *Console) readEntry(ctx context.Context, key string) *entry {
	e := &entry{Now: *history.LookNow(ctx, c.inRedis, key)}
	if e.InRedis == nil {
		return e
	}
	_ = c.inRedis(func(redis *keyspace.Contents) error {
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
