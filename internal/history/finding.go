package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
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
	shownOld         = 10
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
	past, err := search(ctx, c.DB, q)
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
		if f.Key != "" && (s.Name == f.Key || s.Kind == store.SweepPattern && Matches(s.Name, f.Key) || s.Kind == store.SweepSet && f.reach.member) ||
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
	survivors, err := store.NewStaleEntries(c.DB).Of(ctx, f.Key, shownOld)
	differences, err2 := maintenance.NewShadowTable(c.DB).Of(ctx, f.Key, shownOld)
	if err = cmp.Or(err, err2); err != nil {
		f.OldErr = session.Explain(err).Error()
		return
	}
	f.Old = newOld(survivors, differences, shownOld)
}

func (c *Finder) readEntry(ctx context.Context, key string) *Entry {
	e := &Entry{Now: *lookNow(ctx, c.Redis, key)}
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

// A reach finds out whether rows reach a key, without lookups.
type reach struct {
	m       *invalidation.Map // nil: unknown
	noMap   string            // then the reason
	key     string
	origins []invalidation.Origin
	all     bool // of origins
	member  bool // the key may be a member of an index set, or have a tag
}

// A Waiting row reaches the key or, if May is set, may reach it for that reason.
type Waiting struct {
	store.PendingRow
	May string
}

// searchedOrigins is how many origins of a key are distinguished; beyond, each row may reach it.
const searchedOrigins = 200

func newReach(m *invalidation.Map, noMap, key string) *reach {
	r := &reach{m: m, noMap: noMap, key: key, member: m == nil || mayBeMember(m, key)}
	if m != nil {
		r.origins, r.all = m.Origins(key, searchedOrigins)
	}
	return r
}

// mayBeMember reports whether an entry of the key may be in an index set, or have a tag. Only the
// section reads can exclude it.
func mayBeMember(m *invalidation.Map, key string) bool {
	if !slices.ContainsFunc(m.Names(), links) {
		return false
	}
	names, reads := m.Reads().Of(key), m.Reads().All()
	return len(names) == 0 || slices.ContainsFunc(names, func(n invalidation.ReadName) bool {
		return n.Unsure || slices.ContainsFunc(reads, func(r invalidation.Read) bool { return r.Name == n.Read && len(r.Tags)+len(r.Sets) > 0 })
	})
}

// links reports whether a name reaches entries that it does not name.
func links(n invalidation.MapName) bool {
	return n.Kind == invalidation.KindSet || n.Kind == invalidation.KindStamp
}

// linking reports whether rows of an entity reach entries that they do not name.
func (r *reach) linking(entity string) bool {
	d, _ := r.m.Describe(entity)
	return slices.ContainsFunc(d.Makes, links) || slices.ContainsFunc(d.As, func(a invalidation.AliasSource) bool { return r.linking(a.Entity) })
}

// query selects the rows that can reach the key.
func (r *reach) query() (q store.PendingQuery) {
	if r.m == nil || !r.all {
		return store.PendingQuery{All: true}
	}
	q.Objects = []store.Object{{Entity: invalidation.KeyEntity, ID: r.key}, {Entity: invalidation.PatternEntity}}
	for _, o := range r.origins {
		q.Objects = append(q.Objects, store.Object{Entity: o.Entity, ID: o.ID})
	}
	q.Not = []string{invalidation.KeyEntity, invalidation.PatternEntity}
	for _, entity := range r.m.Entities() {
		q.Not = append(q.Not, entity)
		if r.member && r.linking(entity) {
			q.Objects = append(q.Objects, store.Object{Entity: entity})
		}
	}
	return q
}

// of reports whether a row reaches the key, or may reach it, and then why that is not certain.
func (r *reach) of(p *store.PendingRow) (reaches bool, may string) {
	switch p.Entity {
	case invalidation.KeyEntity:
		return p.EntityID == r.key, ""
	case invalidation.PatternEntity:
		return Matches(p.EntityID, r.key), ""
	}
	if r.m == nil {
		return true, r.noMap
	}
	if _, known := r.m.Describe(p.Entity); !known {
		return true, "the map has no such entity"
	}
	row, plan, err := invalidation.Row{Entity: p.Entity, ID: p.EntityID}, invalidation.Plan{}, error(nil)
	if p.Params != nil {
		row.Params, err = invalidation.ParseParams([]byte(*p.Params))
	}
	if err == nil {
		if plan, err = r.m.Expand(row, nil); err != nil {
			plan, _ = r.m.ExpandWithoutLookups(row) // err remains
		}
	}
	if slices.Contains(plan.Keys, r.key) || slices.ContainsFunc(plan.Patterns, func(pattern string) bool { return Matches(pattern, r.key) }) {
		return true, ""
	}
	if r.member && r.linking(p.Entity) {
		return true, "it also invalidates an index set or a tag, and whether this key belongs to it is unknown"
	}
	if err == nil {
		return false, ""
	}
	// a missing or cut ID matches each
	whole := p.EntityID != "" && utf8.RuneCountInString(p.EntityID) <= 255
	return !r.all || slices.ContainsFunc(r.origins, func(o invalidation.Origin) bool {
		return o.Entity == p.Entity && (o.ID == "" || o.ID == p.EntityID || !whole)
	}), "which keys it has depends on lookups, or the map refuses it"
}

// Matches reports whether a pattern matches a key.
func Matches(pattern, key string) bool {
	glob, err := protocol.CompileGlob(pattern)
	return err == nil && glob.Match(key)
}

// A clockGap is how far the clock of Redis is ahead of the database's: at most most, and at least
// unsure less. Entries have the time of Redis, and sweeps that of the database.
type clockGap struct{ most, unsure time.Duration }

// readGap compares the clocks, or returns nil if one cannot be read.
func (c *Finder) readGap(ctx context.Context, key string) *clockGap {
	if c.DB == nil {
		return nil
	}
	began, gap := time.Now(), &clockGap{}
	in, err := ReadClock(ctx, c.DB)
	if err != nil {
		return nil
	}
	if c.Redis(func(redis *keyspace.Contents) error {
		at, err := redis.Time(ctx, key)
		gap.most, gap.unsure = at.Sub(in), time.Since(began)
		return err
	}) != nil {
		return nil
	}
	return gap
}

// Contract: reads no table.
const nowSQL = "SELECT UTC_TIMESTAMP(6)"

// ReadClock returns the time of MySQL.
func ReadClock(ctx context.Context, db *session.Sessions) (at time.Time, err error) {
	if err = db.Side.GetContext(ctx, &at, nowSQL); err != nil {
		err = fmt.Errorf("read the clock: %w", err)
	}
	return at, err
}

// compare returns 1 if a time of Redis is certainly after a time of the database, -1 if it is
// certainly before it, and 0 otherwise.
func (g *clockGap) compare(redis, database time.Time) int {
	switch {
	case g == nil:
		return 0
	case redis.After(database.Add(g.most)):
		return 1
	case redis.Before(database.Add(g.most - g.unsure)):
		return -1
	}
	return 0
}

// An OldEntry is an old entry that a spot check or a shadow read found.
type OldEntry struct {
	At   time.Time
	Key  string
	Tag  string // in two words
	Says string // what was found, and what to do
	Row  uint64 // that it survived; 0: none is known

	lease time.Time // of a value that differs from the database
}

// LatestOld returns the old entries that were found most recently, at most limit.
func LatestOld(ctx context.Context, db *session.Sessions, limit int) ([]OldEntry, error) {
	survivors, err := store.NewStaleEntries(db).Latest(ctx, limit)
	differences, err2 := maintenance.NewShadowTable(db).Latest(ctx, limit)
	if err = cmp.Or(err, err2); err != nil {
		return nil, err
	}
	return newOld(survivors, differences, limit), nil
}

// newOld merges what both kinds of checks found, the newest first.
func newOld(survivors []store.StaleEntry, differences []maintenance.ShadowStored, limit int) []OldEntry {
	list := []OldEntry{}
	for _, e := range survivors {
		list = append(list, newSurvivor(e))
	}
	for _, d := range differences {
		list = append(list, newDifference(d))
	}
	slices.SortStableFunc(list, func(a, b OldEntry) int { return b.At.Compare(a.At) })
	return list[:min(len(list), limit)]
}

func newSurvivor(e store.StaleEntry) OldEntry {
	during, now := "", "It is still there."
	if e.Held {
		during = ", during a hold"
	}
	if e.Repaired {
		now = "The worker has unlinked it."
	}
	return OldEntry{
		At: e.FoundAt, Key: e.Key, Tag: "stale entry", Row: e.Row,
		Says: "It survived its UNLINK" + during + ". " + now + " Look for a program that stores values without package cache: docs/operations.md#a-stale-entry",
	}
}

func newDifference(d maintenance.ShadowStored) OldEntry {
	f := OldEntry{At: d.At, Key: d.Key, Tag: "old value", lease: d.Lease, Says: "The database has another value, although the key was unlinked."}
	if d.Outcome == maintenance.NoRow {
		f.Tag, f.Says = "forgotten row", "The database has another value, and no row has named the key since "+d.Lease.UTC().Format(time.DateTime)+" UTC."
	}
	if len(d.Entities) > 0 {
		f.Says += " Rows of " + strings.Join(d.Entities, ", ") + " reach it."
	}
	f.Says += " Process " + d.Process + " noticed it. What to do: " + d.Fix()
	return f
}
