package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Settlement is one row's entry in the journal, or a finished sweep's, with the JSON of `unstale
// history`.
type Settlement struct {
	SettledAt time.Time `json:"settled_at"`
	// by the clock of Redis, before the first UNLINK; null: not known
	BornAt     *time.Time `json:"born_at"`
	Batch      uint64     `json:"batch"`
	Worker     string     `json:"worker"`
	MapVersion string     `json:"map_version"`
	Row        uint64     `json:"row"`
	// the request that was carried out; then there is no row
	Sweep    uint64 `json:"sweep,omitempty"`
	Entity   string `json:"entity"`
	EntityID string `json:"entity_id"`
	Trace    string `json:"trace"`
	// a lookup of the row had failed, and these names need none; the row was not settled
	Partial  bool     `json:"partial"`
	Keys     []string `json:"keys"`
	Patterns []string `json:"patterns"`
	Sets     []string `json:"sets"`

	// The way of the row and its batch, by the database's clock; null: not known, or there was
	// none.
	WrittenAt   *time.Time `json:"written_at"`
	ClaimedAt   *time.Time `json:"claimed_at"`
	UnlinkedAt  *time.Time `json:"unlinked_at"`
	PublishedAt *time.Time `json:"published_at"`
	Receivers   *int       `json:"receivers"` // of the message with the fewest subscribers
	Messages    uint64     `json:"messages"`  // of the batch; 0: not known

	// processes that report it; whether others did is unknown. null: not known
	EvictedBy      []Evictor `json:"evicted_by"`
	EvictedUnknown string    `json:"evicted_unknown,omitempty"`

	runs  []store.MessageRun // the messages
	Least bool               `json:"-"` // processes have received more than they report
}

func newSettlement(b store.Batch, e *store.JournalEntry) Settlement {
	s := Settlement{
		SettledAt: b.SettledAt, BornAt: b.BornAt(), Batch: b.ID, Worker: b.Worker, MapVersion: b.MapVersion, Row: e.ID,
		Entity: e.Entity, EntityID: e.EntityID, Trace: e.Trace, Partial: e.Partial, Keys: orNone(e.Keys), Patterns: orNone(e.Patterns), Sets: orNone(e.Sets),
	}
	if e.IsSweep() {
		s.Row, s.Sweep = 0, e.ID
	}
	if e.WrittenMicros != 0 {
		s.WrittenAt = new(time.UnixMicro(e.WrittenMicros).UTC())
	}
	if j := b.Journey; j != nil {
		s.ClaimedAt, s.UnlinkedAt, s.PublishedAt = before(b.SettledAt, j.Claimed), before(b.SettledAt, j.Unlinked), before(b.SettledAt, j.Published)
		s.runs = j.Runs
		if j.Receivers >= 0 {
			s.Receivers = &j.Receivers
		}
	}
	return s
}

// before returns a time so long before another one, nil where that is not known.
func before(settled time.Time, ago time.Duration) *time.Time {
	if ago == 0 {
		return nil
	}
	return new(settled.Add(-ago))
}

// A Past is the result from the journal, and from the tables of rows that are not settled.
type Past struct {
	More    bool         `json:"more"` // older ones are left out
	Found   []Settlement `json:"found"`
	Damaged []uint64     `json:"damaged"` // batches that cannot be read

	// Unreported are how many messages processes have received and not reported, since the oldest
	// of these rows or shortly before.
	Unreported map[string]uint64 `json:"unreported,omitempty"`

	// what could not be read, or not quickly, and the grant that is missing
	Untold []string `json:"untold,omitempty"`

	Stale []Stale `json:"stale,omitempty"` // entries of the key

	// what Redis holds under the key, if it was asked for
	Now *Now `json:"now,omitempty"`
	// whether the key, or the keys of the rows, are stale, and why, if all of the journal was searched
	Answer *Answer          `json:"answer,omitempty"`
	Waits  []store.RowPlace `json:"waits,omitempty"` // where rows are now, if they were asked for
	Reads  []Read           `json:"reads,omitempty"` // that have the key, if there is a map
	Since  *time.Time       `json:"-"`               // the journal's beginning, if nothing was found

	WaitsUnknown bool `json:"-"` // where the row is could not be read
}

// A Read is an entry of the section reads of a map that has a key.
type Read struct {
	Read     string `json:"read"`
	Kind     string `json:"kind"`
	Template string `json:"template"`
	// a value contains a colon: the key may be a longer name, which no read has
	Unsure bool `json:"unsure"`
}

// ReadsOf returns the reads of a map that have a key.
func ReadsOf(m *invalidation.Map, key string) (all []Read) {
	for _, n := range m.Reads().Of(key) {
		all = append(all, Read{n.Read, string(n.Kind), n.Text, n.Unsure})
	}
	return all
}

// A Query selects what to read. Its hooks are not used.
type Query struct {
	store.JournalQuery
	Limit     int  // of settlements, the newest
	Unsettled bool // rows that are not settled too, for names as well as for Row
}

// manyUnsummarised is more batches than wait for their summary while a worker keeps up: it
// summarizes every ten seconds.
const manyUnsummarised = 20_000

// search reads the newest settlements, and lists the batches that cannot be read.
func search(ctx context.Context, db *session.Sessions, q Query) (*Past, error) {
	all := &Past{Found: []Settlement{}, Damaged: []uint64{}}
	q.Unsummarised = func(err error) {
		all.Miss("the summaries of the journal cannot be read, so all of it is searched, which takes longer", err)
	}
	q.Searched = func(batches int) {
		if batches > manyUnsummarised && len(all.Untold) == 0 {
			all.Untold = append(all.Untold, fmt.Sprintf("%d batches of the journal have no summary yet, so the search read each of them, which takes longer; "+
				"workers summarize them: if that lasts, see whether one runs, and its log", batches))
		}
	}
	err := store.NewJournal(db).SearchJournal(ctx, q.JournalQuery, func(b store.Batch, entries []store.JournalEntry) bool {
		for i := range slices.Backward(entries) {
			if all.More = len(all.Found) == q.Limit; all.More {
				return false
			}
			all.Found = append(all.Found, newSettlement(b, &entries[i]))
		}
		return true
	}, func(b store.DamagedBatch) { all.Damaged = append(all.Damaged, b.ID) })
	slices.Reverse(all.Found)
	slices.Reverse(all.Damaged)
	if err == nil && q.Key != "" {
		all.addStale(ctx, db, q)
	}
	if err == nil && len(all.Found) == 0 {
		all.Since, err = store.NewJournal(db).JournalStart(ctx)
	}
	where := store.RowPlacesQuery{Row: q.Row}
	if q.Unsettled {
		where.Entity, where.EntityID, where.Trace = q.Entity, q.EntityID, q.Trace
	}
	if err != nil || where == (store.RowPlacesQuery{}) {
		return all, err
	}
	all.Waits, err = store.NewActions(db).RowPlaces(ctx, where)
	if session.MissingGrant(err) != "" || err != nil && q.Row == 0 && ctx.Err() == nil { // a scan may take too long
		all.WaitsUnknown = true
		all.Miss("which rows are not settled is unknown", err)
		return all, nil
	}
	return all, err
}

// Miss records the part of the result that a missing privilege hides.
func (p *Past) Miss(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if grant := session.MissingGrant(err); grant != "" {
		text += "; " + grant + " to this account; docs/accounts.md lists the grants"
	}
	p.Untold = append(p.Untold, text)
}

// orNone makes an empty list of nil, for JSON.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// A Redis calls a function with what Redis holds. It returns an error if there is no Redis.
type Redis func(ask func(*keyspace.Contents) error) error

// A Now is the current state of a key in Redis.
type Now struct {
	InRedis *bool `json:"in_redis"` // null: not known
	// of an entry of package cache, by the clock of Redis; null: not known
	BornAt  *time.Time `json:"born_at"`
	Unknown string     `json:"unknown,omitempty"`
}

// lookNow reads a key. An error becomes part of the result.
func lookNow(ctx context.Context, in Redis, key string) *Now {
	var present keyspace.Present
	err := in(func(redis *keyspace.Contents) (err error) {
		present, err = redis.Present(ctx, key)
		return err
	})
	if err != nil {
		return &Now{Unknown: err.Error()}
	}
	n := &Now{InRedis: &present.Exists}
	if !present.Born.IsZero() {
		n.BornAt = &present.Born
	}
	return n
}

// reportSlack is how far the clocks of the database and of Redis may be apart.
const reportSlack = 10 * time.Minute

// An Evictor is a process that reports to have evicted what messages of a batch name.
type Evictor struct {
	Process  string `json:"process"`
	Messages uint64 `json:"messages"` // of how many of them
}

// A wantedRun is messages of a batch.
type wantedRun struct{ batch, first, last uint64 }

// A message is one of an epoch.
type message struct{ epoch, number uint64 }

// reported are the messages of a batch that processes report. One that a process reports twice
// counts once.
type reported map[string]map[message]bool

// AddEvictions asks Redis which processes have reported the messages of the rows. An error becomes
// part of the result.
func (all *Past) AddEvictions(ctx context.Context, in Redis) {
	wanted, since := map[uint64][]wantedRun{}, time.Time{} // by epoch
	batches := map[uint64]reported{}
	for i := range all.Found {
		s := &all.Found[i]
		for _, r := range s.runs {
			s.Messages += r.Last - r.First + 1
		}
		if !s.MayBeEvicted() || batches[s.Batch] != nil {
			continue
		}
		batches[s.Batch] = reported{}
		if since.IsZero() || s.PublishedAt.Before(since) {
			since = *s.PublishedAt
		}
		for _, r := range s.runs {
			wanted[r.Epoch] = append(wanted[r.Epoch], wantedRun{s.Batch, r.First, r.Last})
		}
	}
	if len(batches) == 0 {
		return
	}
	oldest, dropped := time.Time{}, map[string]uint64{}
	err := in(func(redis *keyspace.Contents) error {
		return redis.Reports(ctx, since.Add(-reportSlack), func(r protocol.Report, at time.Time) {
			oldest = at
			epoch := store.EpochHash(r.Epoch)
			for _, w := range wanted[epoch] {
				batches[w.batch].addReport(r.Process, epoch, max(w.first, r.First), min(w.last, r.Last))
			}
			if r.Dropped > 0 {
				dropped[r.Process] += r.Dropped
			}
		})
	})
	if len(dropped) > 0 {
		all.Unreported = dropped
	}
	for i := range all.Found {
		if s := &all.Found[i]; s.MayBeEvicted() {
			s.Least = len(dropped) > 0
			if s.EvictedBy = batches[s.Batch].evictors(); len(s.EvictedBy) == 0 {
				s.EvictedUnknown = s.whyUnknown(err, oldest)
			}
		}
	}
}

// MayBeEvicted reports whether a process may have received a message of the row.
func (s *Settlement) MayBeEvicted() bool {
	return s.PublishedAt != nil && (s.Receivers == nil || *s.Receivers > 0)
}

// whyUnknown returns why no process is known to have evicted the keys of the row.
func (s *Settlement) whyUnknown(err error, oldest time.Time) string {
	switch {
	case s.Messages == 0:
		return "its messages have no numbers"
	case err != nil:
		return err.Error()
	case oldest.IsZero():
		return "no process reports"
	case oldest.After(*s.PublishedAt):
		return "reports begin at " + oldest.Format(time.RFC3339)
	}
	return "no process has reported it"
}

// addReport records messages of a report, both ends included.
func (m reported) addReport(process string, epoch, first, last uint64) {
	for number := first; number <= last; number++ {
		if m[process] == nil {
			m[process] = map[message]bool{}
		}
		m[process][message{epoch, number}] = true
	}
}

// evictors lists the processes by name.
func (m reported) evictors() (list []Evictor) {
	for _, process := range slices.Sorted(maps.Keys(m)) {
		list = append(list, Evictor{process, uint64(len(m[process]))})
	}
	return list
}

// A Stale is a stale entry of the key, as a spot check found it.
type Stale struct {
	FoundAt    time.Time  `json:"found_at"`
	Worker     string     `json:"worker"`
	Row        uint64     `json:"row"`
	LeasedAt   *time.Time `json:"leased_at"` // by the clock of Redis; null: not known
	UnlinkedAt time.Time  `json:"unlinked_at"`
	Held       bool       `json:"held"` // it was stored while the key had a tombstone
	Repaired   bool       `json:"repaired"`
}

// addStale adds the stale entries of the key, the newest last.
func (p *Past) addStale(ctx context.Context, db *session.Sessions, q Query) {
	list, err := store.NewStaleEntries(db).Of(ctx, q.Key, q.Limit)
	if err != nil {
		p.Miss("whether spot checks found stale entries of the key is unknown", err)
		return
	}
	for _, e := range slices.Backward(list) {
		if q.Since > 0 && time.Since(e.FoundAt) > q.Since {
			continue
		}
		s := Stale{
			FoundAt: e.FoundAt, Worker: e.Worker, Row: e.Row, UnlinkedAt: time.UnixMicro(int64(e.Unlinked)).UTC(), Held: e.Held, Repaired: e.Repaired,
		}
		if e.Leased != 0 {
			s.LeasedAt = new(time.UnixMicro(int64(e.Leased)).UTC())
		}
		p.Stale = append(p.Stale, s)
	}
}
