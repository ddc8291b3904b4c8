package maintenance

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

const (
	period = 2 * time.Second
	// limit bounds the check of one report.
	limit = 10 * time.Second
	// patience is how long a report waits while something may explain it.
	patience = time.Minute
	// shadowDeniedPause is the pause after Redis has refused to show the reports: each refusal creates an
	// entry in its ACL log.
	shadowDeniedPause = 10 * time.Minute
	// mostWaiting is how many reports wait for their check.
	mostWaiting = 2 * protocol.MaxShadows
	// mostTags is how many tags of an entry the journal is searched for.
	mostTags = 100
)

// ShadowMetrics measure checks of reports.
type ShadowMetrics interface {
	Checked(ShadowResult)
	// Unstored sets why the last finding could not be stored, nil if it was.
	Unstored(error)
}

// A ShadowChecker checks reports. One goroutine owns it.
type ShadowChecker struct {
	Deps
	metrics   ShadowMetrics
	table     *ShadowTable
	retention time.Duration // for which batches stay in the journal; zero: always
	journal   interface {   // that of Store, except in tests
		SearchJournal(context.Context, store.JournalQuery, func(store.Batch, []store.JournalEntry) bool, func(store.DamagedBatch)) error
	}

	last    string // entry of the stream
	waiting []waiting
	denied  time.Time // when Redis last refused to show the reports

	unstored           map[string]bool // findings that could not be stored, by ID
	minute             store.Minute
	checked, confirmed uint64 // in the minute
}

// waiting is a report that was first seen at a time.
type waiting struct {
	protocol.Shadow
	seen time.Time
}

// NewShadowChecker returns a ShadowChecker of all reports in the stream that are not too old for
// other workers. Batches stay in the journal for retention; zero: always.
func NewShadowChecker(d Deps, retention time.Duration, m ShadowMetrics) *ShadowChecker {
	return &ShadowChecker{
		Deps: d, metrics: m, table: NewShadowTable(d.Store.Sessions), retention: retention, journal: d.Store.Journal,
		last: strconv.FormatInt(time.Now().Add(-patience).UnixMilli(), 10), unstored: map[string]bool{},
	}
}

// Run checks reports every two seconds until ctx ends.
func (c *ShadowChecker) Run(ctx context.Context) {
	for sleep.For(ctx, period) == nil {
		if !c.State.Rests() {
			c.step(ctx)
		}
	}
}

// step reads new reports, and checks those that the worker's proof covers.
func (c *ShadowChecker) step(ctx context.Context) {
	if !c.denied.IsZero() && time.Since(c.denied) < shadowDeniedPause {
		return
	}
	now := time.Now()
	reports, last, err := c.Redis.Shadows(ctx, c.last)
	if c.logDenied(err); err != nil {
		return
	}
	c.last = last
	for _, r := range reports {
		c.waiting = append(c.waiting, waiting{r, now})
	}
	if len(c.waiting) == 0 {
		return
	}
	known, err := c.table.known(ctx)
	proven := *c.State.Proven.Load()
	var left []waiting
	for _, w := range c.waiting {
		id := string((&ShadowFinding{Shadow: w.Shadow}).id())
		switch {
		case ctx.Err() != nil:
			return
		case known[id], err != nil && c.unstored[id]: // most reports repeat a few differences
			c.countChecked(ctx, Known)
			continue
		case w.seen.Before(proven):
			if result := c.try(ctx, &w.Shadow); result != ShadowUnknown || now.Sub(w.seen) > patience {
				known[id] = result == Confirmed || result == Known
				c.countChecked(ctx, result)
				continue
			}
		case now.Sub(w.seen) > patience:
			c.countChecked(ctx, ShadowUnknown)
			continue
		}
		if len(left) < mostWaiting {
			left = append(left, w)
		}
	}
	c.waiting = left
}

// logDenied logs once that Redis refuses to show the reports.
func (c *ShadowChecker) logDenied(err error) {
	if err == nil {
		c.denied = time.Time{}
	}
	if !keyspace.IsDenied(err) { // outages are logged elsewhere
		return
	}
	if c.denied.IsZero() {
		c.Log.Info("shadow reads are not checked: Redis refuses to show them", "error", err,
			"fix", "grant +xrange %R~"+protocol.ShadowKey+" if readers set cache.Config.Shadow: unstale acl worker --shadow")
	}
	c.denied = time.Now()
}

// countChecked records a checked report.
func (c *ShadowChecker) countChecked(ctx context.Context, r ShadowResult) {
	c.metrics.Checked(r)
	if m := store.MinuteAt(time.Now()); m != c.minute {
		c.minute, c.checked, c.confirmed = m, 0, 0
	}
	if c.checked++; r == Confirmed {
		c.confirmed++
	}
	if err := c.Store.Minutes.NoteShadows(ctx, c.minute, c.checked, c.confirmed); err != nil {
		c.Log.Debug("cannot count shadow reads", "error", err)
	}
}

// try checks one report. Everything that was committed before it is invalidated.
func (c *ShadowChecker) try(ctx context.Context, s *protocol.Shadow) ShadowResult {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m := c.Map.Map()
	f := ShadowFinding{Shadow: *s}
	result, err := c.confirm(ctx, m, &f)
	if err != nil {
		c.Log.Debug("cannot check a shadow read", "key", s.Key, "error", err)
		return ShadowUnknown
	}
	if result != Confirmed {
		return result
	}
	isNew, err := c.table.Insert(ctx, &f)
	if err != nil {
		id := string(f.id())
		if isNew = !c.unstored[id] && len(c.unstored) < keep; isNew {
			c.unstored[id] = true
			c.Log.Warn("cannot store a difference of a shadow read", "error", err, "fix", Grant)
		}
	}
	if c.metrics.Unstored(err); !isNew {
		return Known
	}
	c.Log.Warn("a cached value differs from the database", "key", f.Key, "tags", f.Tags, "outcome", f.Outcome, "entities", f.Entities,
		"leased_at", f.Lease, "loaded_at", f.Loaded, "process", f.Process, "map_version", m.Version(), "fix", f.Fix())
	return Confirmed
}

// confirm returns Confirmed if nothing explains the difference.
func (c *ShadowChecker) confirm(ctx context.Context, m *invalidation.Map, f *ShadowFinding) (ShadowResult, error) {
	names := f.names()
	if f.Loaded.After(time.Now().Add(shadowSlack)) || c.State.Heals() || c.retention > 0 && time.Since(f.Lease) > c.retention-shadowSlack || len(names) > mostTags || holds(m, names) {
		return ShadowUnknown, nil
	}
	why, err := c.table.Explains(ctx, f.Lease, func(pattern string) bool { return reaches(pattern, names) })
	if why != "" || err != nil {
		return ShadowUnknown, err
	}
	var complete bool
	f.Entities, complete = entities(m, names)
	if others := c.State.Others.Load(); len(f.Entities) == 0 && (others == nil || slices.ContainsFunc(*others, func(name string) bool { return reaches(name, names) })) {
		return ShadowUnknown, nil // the key is, or may be, another outbox's
	}
	digest, err := c.Redis.EntryDigest(ctx, f.Key)
	switch {
	case keyspace.IsDenied(err) && complete && len(f.Entities) == 0:
		// The account has the names of the map alone, so no row can reach this key.
	case err != nil:
		return ShadowUnknown, err
	case digest != f.Digest:
		return Gone, nil
	}
	if f.Outcome, err = c.outcome(ctx, f, names); err != nil || f.Outcome == "" || c.State.Heals() {
		return ShadowUnknown, err
	}
	return Confirmed, nil
}

// outcome searches the journal for unlinks of names since the lease of the entry. It returns "" if
// the journal has corrupt rows.
func (c *ShadowChecker) outcome(ctx context.Context, f *ShadowFinding, names []string) (string, error) {
	outcome := NoRow
	for _, name := range names {
		q := store.JournalQuery{Key: name, Since: max(time.Since(f.Lease), 0) + shadowSlack}
		err := c.journal.SearchJournal(ctx, q, func(b store.Batch, _ []store.JournalEntry) bool {
			if at := b.BornAt(); at != nil && at.After(f.Lease) && outcome != "" {
				outcome = Survived
			}
			return true
		}, func(store.DamagedBatch) { outcome = "" })
		if err != nil {
			return "", err
		}
	}
	return outcome, nil
}

// The outcomes of a confirmed difference.
const (
	// NoRow: nothing was unlinked since the lease of the entry. A write has no row, its row does
	// not reach the key by the map, or the loader of the entry read old data.
	NoRow = "no_row"
	// Survived: the key or one of its tags was unlinked since then, and the entry is still there.
	Survived = "survived"
)

// A ShadowFinding is a confirmed difference.
type ShadowFinding struct {
	protocol.Shadow
	Outcome  string
	Entities []string // whose rows reach the key or its tags by the map
}

// A ShadowStored is a finding in cache_outbox_shadow, without tags and digest.
type ShadowStored struct {
	ShadowFinding
	At time.Time // when it was confirmed; UTC, the database's clock
}

// id identifies the entry: each process that reads it reports it.
func (f *ShadowFinding) id() []byte {
	sum := sha1.Sum([]byte(f.Key + "\x00" + f.Digest))
	return sum[:]
}

// jsonList returns the JSON of texts, never null.
func jsonList(texts []string) string {
	text, _ := json.Marshal(append([]string{}, texts...)) // text: it cannot fail
	return string(text)
}

// Grant is the fix for an account that may not store findings.
const Grant = "GRANT SELECT, INSERT, DELETE ON cache_outbox_shadow to the worker's account; docs/accounts.md lists the grants"

// mostOrigins bounds the search for entities that reach a name.
const mostOrigins = 100

// names returns the key, and the keys of the versions of its tags.
func (f *ShadowFinding) names() []string {
	names := []string{f.Key}
	for _, tag := range f.Tags {
		names = append(names, protocol.StampKey(tag))
	}
	return names
}

// Fix returns what an operator can do.
func (f *ShadowFinding) Fix() string {
	switch {
	case f.Outcome == Survived:
		return "look for a reader that stores values without a lease, or with a lease longer than the map's"
	case len(f.Entities) == 0:
		return "add the key to an entity of the map: no row reaches it"
	}
	return "find a write of these entities, committed before loaded_at, that inserts no row: unstale map who KEY"
}

// entities returns the entities whose rows reach any of names, and whether these are all.
func entities(m *invalidation.Map, names []string) (found []string, complete bool) {
	complete = true
	for _, name := range names {
		origins, all := m.Origins(name, mostOrigins)
		complete = complete && all
		for _, o := range origins {
			found = append(found, o.Entity)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), complete
}

// reaches reports whether a pattern matches any of names. A pattern that cannot be read might.
func reaches(pattern string, names []string) bool {
	glob, err := protocol.CompileGlob(pattern)
	return err != nil || slices.ContainsFunc(names, glob.Match)
}

// holds reports whether a row that reaches any of names has a hold that is longer than the lease.
func holds(m *invalidation.Map, names []string) bool {
	return slices.ContainsFunc(m.Names(), func(n invalidation.MapName) bool {
		return n.Hold > m.Lease() && reaches(n.Glob, names)
	})
}

// A ShadowResult is the result of the check of a report.
type ShadowResult string

const (
	// Confirmed: the entry differs, and no row explains it.
	Confirmed ShadowResult = "confirmed"
	// Known: it is confirmed already, by another report.
	Known ShadowResult = "known"
	// Gone: the entry was invalidated, replaced or expired meanwhile.
	Gone ShadowResult = "gone"
	// Unknown: a row may explain the difference.
	ShadowUnknown ShadowResult = "unknown"
)

// ShadowResults are all results.
var ShadowResults = []ShadowResult{Confirmed, Known, Gone, ShadowUnknown}

const (
	// keep is how many findings are stored.
	keep = 1000
	// read bounds how many delayed rows and sweeps are examined. If there are more, the result is
	// unknown.
	read = 1000
	// shadowSlack is by how much the clocks of Redis and MySQL may differ.
	shadowSlack = time.Minute
)

// Contract for all: no lock (consistent reads, of one snapshot); at most LIMIT rows of one index.
const (
	delayedSQL = `SELECT COUNT(*), COALESCE(SUM(repeated = 0 AND (attempts > 0 OR due_at <= UTC_TIMESTAMP(6))), 0)
FROM (SELECT repeated, attempts, due_at FROM cache_outbox_delayed FORCE INDEX (PRIMARY) LIMIT ?) AS some`
	deadSQL   = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_dead FORCE INDEX (died) WHERE died_at >= ? LIMIT 1) AS some"
	sweepsSQL = "SELECT kind, name FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) LIMIT ?"
)

// Contract for the first: an exclusive lock for one statement on one row by primary key; repeating
// it is harmless. The second and the third read at most 1,001 entries of an index. The fourth deletes
// the oldest rows by the index on the time. The last two take no lock, and read at most all entries.
const (
	insertSQL = `INSERT IGNORE INTO cache_outbox_shadow (id, cache_key, tags, entities, outcome, process, leased_at, loaded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	countSQL = "SELECT COUNT(*) FROM cache_outbox_shadow"
	knownSQL = "SELECT id FROM cache_outbox_shadow"
	trimSQL  = "DELETE FROM cache_outbox_shadow ORDER BY confirmed_at LIMIT ?"

	columns   = "SELECT cache_key AS `key`, entities AS packed, outcome, process, leased_at AS lease, loaded_at AS loaded, confirmed_at AS at FROM cache_outbox_shadow "
	latestSQL = columns + "ORDER BY confirmed_at DESC LIMIT ?"
	ofSQL     = columns + "WHERE cache_key = ? ORDER BY confirmed_at DESC LIMIT ?"
)

// A ShadowTable is cache_outbox_shadow, and the tables that can explain a difference. Safe for concurrent
// use.
type ShadowTable struct{ db *session.Sessions }

// NewShadowTable returns the Table of an outbox.
func NewShadowTable(db *session.Sessions) *ShadowTable { return &ShadowTable{db} }

// Explains returns what may explain that an entry of that lease time differs, or "" if nothing
// does. reaches reports whether a pattern may match the key or its tags.
func (t *ShadowTable) Explains(ctx context.Context, leased time.Time, reaches func(pattern string) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	tx, err := t.db.Side.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // it has no writes
	var rows, failed, dead int
	if err := tx.QueryRowContext(ctx, delayedSQL, read+1).Scan(&rows, &failed); err != nil {
		return "", err
	}
	if failed > 0 || rows > read {
		return "delayed rows", nil
	}
	if err := tx.QueryRowContext(ctx, deadSQL, leased.Add(-shadowSlack)).Scan(&dead); err != nil {
		return "", err
	}
	if dead > 0 {
		return "dead letters", nil
	}
	var sweeps []struct {
		Kind string `db:"kind"`
		Name []byte `db:"name"`
	}
	if err := tx.SelectContext(ctx, &sweeps, sweepsSQL, read+1); err != nil {
		return "", err
	}
	if len(sweeps) > read {
		return "sweeps", nil
	}
	for _, s := range sweeps {
		if s.Kind != "pattern" || reaches(string(s.Name)) { // a set may have the key as a member
			return "sweeps", nil
		}
	}
	return "", nil
}

// Insert stores a finding, and deletes the oldest ones beyond the bound. It reports false if the
// entry is stored already.
func (t *ShadowTable) Insert(ctx context.Context, f *ShadowFinding) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	inserted, err := session.Affected(t.db.Side.ExecContext(ctx, insertSQL, f.id(), []byte(f.Key), jsonList(f.Tags), jsonList(f.Entities), f.Outcome, f.Process, f.Lease, f.Loaded))
	if err != nil || inserted == 0 {
		return false, dberr.Wrap(err, "store a difference")
	}
	count := 0
	if err := t.db.Side.GetContext(ctx, &count, countSQL); err != nil || count <= keep {
		return true, err
	}
	_, err = t.db.Side.ExecContext(ctx, trimSQL, count-keep)
	return true, err
}

// known returns the IDs of all findings, in a map that is never nil.
func (t *ShadowTable) known(ctx context.Context) (map[string]bool, error) {
	var ids []string
	err := t.db.ReadRows(ctx, &ids, knownSQL)
	all := make(map[string]bool, len(ids))
	for _, id := range ids {
		all[id] = true
	}
	return all, err
}

// Latest returns the newest findings, at most so many, the newest first.
func (t *ShadowTable) Latest(ctx context.Context, limit int) ([]ShadowStored, error) {
	return t.query(ctx, latestSQL, limit)
}

// Of returns the newest findings of a key, at most so many, the newest first.
func (t *ShadowTable) Of(ctx context.Context, key string, limit int) ([]ShadowStored, error) {
	return t.query(ctx, ofSQL, []byte(key), limit)
}

func (t *ShadowTable) query(ctx context.Context, query string, args ...any) (list []ShadowStored, err error) {
	var rows []struct {
		ShadowStored
		Packed []byte // the entities
	}
	if err := t.db.ReadRows(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("read differences: %w", err)
	}
	for _, r := range rows {
		if err := json.Unmarshal(r.Packed, &r.Entities); err != nil {
			return nil, fmt.Errorf("read differences: entities of %q: %w", r.Key, err)
		}
		list = append(list, r.ShadowStored)
	}
	return list, nil
}
