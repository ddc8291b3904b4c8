package console

import (
	"context"
	"errors"
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

	Pending    []operate.PendingRow
	Sweeps     []sweeps.Sweep // requests that match the key
	PendingErr string

	Entry *entry // of the key

	Old    []foundEntry // of the key
	OldErr string       // why Old is unknown

	Answer answer

	acts bool // dead letters can be retried here
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

// Forever reports whether the value does not expire.
func (e *entry) Forever() bool { return e.TTL != nil && *e.TTL < 0 }

// search serves the answer to a question, and the boxes for others.
func (c *Console) search(w http.ResponseWriter, r *http.Request) {
	var m *invalidation.Map
	if c.cfg.Worker != nil {
		m = c.cfg.Worker.Map()
	}
	data := struct {
		Find    *finding
		Explain *explanation
		Map     *invalidation.Map
		Again   string // the address of the answer, if that takes longer
		Acts    bool   // dead letters can be retried, corrected and discarded
	}{Map: m, Explain: explain(m, r.URL.Query()), Acts: c.acts.onDead()}
	if q := ask(r.URL.Query(), m); q != nil {
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
	f := &finding{question: q, Map: m, acts: c.acts.onDead()}
	if m != nil && q.Key != "" {
		var all bool
		f.Origins, all = m.Origins(q.Key, shownOrigins)
		f.Cut, f.Reads = !all, history.ReadsOf(m, q.Key)
	}
	var parts sync.WaitGroup
	parts.Go(func() { f.readPast(ctx, c) })
	parts.Go(func() { f.readPending(ctx, c) })
	if q.Key != "" {
		parts.Go(func() { f.Entry = c.readEntry(ctx, q.Key) })
		parts.Go(func() { f.readOld(ctx, c) })
	}
	parts.Wait()
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

// readPending finds rows that wait and can reach the key, or belong to the entity or the trace.
func (f *finding) readPending(ctx context.Context, c *Console) {
	if c.db == nil {
		f.PendingErr = errNoAccount.Error()
		return
	}
	q := operate.PendingQuery{Trace: f.Trace}
	if f.Entity != "" {
		q.Objects = []operate.Object{{Entity: f.Entity, ID: f.ID}}
	}
	for _, o := range f.Origins {
		q.Objects = append(q.Objects, operate.Object{Entity: o.Entity, ID: o.ID})
	}
	var err error
	if f.Pending, err = operate.NewOrders(c.db).Pending(ctx, q, shownPending); err != nil {
		f.PendingErr = reason(err)
		return
	}
	if f.Key == "" {
		return
	}
	waiting, err := sweeps.New(c.db).All(ctx, searchedSweeps)
	if err != nil {
		f.PendingErr = reason(err)
		return
	}
	for _, s := range waiting {
		if glob, err := protocol.CompileGlob(s.Name); s.Kind == sweeps.SweepPattern && err == nil && glob.Match(f.Key) || s.Name == f.Key {
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
