package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
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

// ShadowRedis has the reports and the entries.
type ShadowRedis interface {
	Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error)
	EntryDigest(ctx context.Context, key string) (string, error)
}

// ShadowConfig configures a Checker.
type ShadowConfig struct {
	Redis   ShadowRedis
	Table   *ShadowTable
	Journal interface {
		SearchJournal(context.Context, store.JournalQuery, func(store.Batch, []store.JournalEntry) bool, func(store.DamagedBatch)) error
	}
	// Note writes how many reports were checked in a minute, and how many of them were confirmed.
	Note func(ctx context.Context, m store.Minute, checked, confirmed uint64) error
	Log  *slog.Logger

	Map func() *invalidation.Map
	// Elsewhere returns the names of other outboxes in the same Redis, as globs, and whether they
	// are known.
	Elsewhere func() (names []string, known bool)
	Proven    func() time.Time   // all commits until then are invalidated; zero: unknown
	Unstored  func(error)        // why a finding could not be stored; nil: it was
	Resting   func() bool        // whether no report can be checked now
	Healing   func() bool        // whether Redis may have lost writes
	Count     func(ShadowResult) // a checked report
	// Retention is how long batches stay in the journal. Zero: always.
	Retention time.Duration
}

// A Checker checks reports. One goroutine owns it.
type ShadowChecker struct {
	cfg     ShadowConfig
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

// NewShadowChecker returns a Checker of all reports in the stream that are not too old for other workers.
func NewShadowChecker(cfg ShadowConfig) *ShadowChecker {
	return &ShadowChecker{cfg: cfg, last: strconv.FormatInt(time.Now().Add(-patience).UnixMilli(), 10), unstored: map[string]bool{}}
}

// Run checks reports every two seconds until ctx ends.
func (c *ShadowChecker) Run(ctx context.Context) {
	for sleep.For(ctx, period) == nil {
		if !c.cfg.Resting() {
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
	reports, last, err := c.cfg.Redis.Shadows(ctx, c.last)
	if c.note(err); err != nil {
		return
	}
	c.last = last
	for _, r := range reports {
		c.waiting = append(c.waiting, waiting{r, now})
	}
	if len(c.waiting) == 0 {
		return
	}
	known, err := c.cfg.Table.known(ctx)
	proven := c.cfg.Proven()
	var left []waiting
	for _, w := range c.waiting {
		id := string((&ShadowFinding{Shadow: w.Shadow}).id())
		switch {
		case ctx.Err() != nil:
			return
		case known[id], err != nil && c.unstored[id]: // most reports repeat a few differences
			c.count(ctx, Known)
			continue
		case w.seen.Before(proven):
			if result := c.try(ctx, &w.Shadow); result != ShadowUnknown || now.Sub(w.seen) > patience {
				known[id] = result == Confirmed || result == Known
				c.count(ctx, result)
				continue
			}
		case now.Sub(w.seen) > patience:
			c.count(ctx, ShadowUnknown)
			continue
		}
		if len(left) < mostWaiting {
			left = append(left, w)
		}
	}
	c.waiting = left
}

// note logs once that Redis refuses to show the reports.
func (c *ShadowChecker) note(err error) {
	var o *keyspace.Outage
	if !errors.As(err, &o) || o.State != keyspace.StateNoPerm {
		if err == nil {
			c.denied = time.Time{}
		}
		return // outages are logged elsewhere
	}
	if c.denied.IsZero() {
		c.cfg.Log.Info("shadow reads are not checked: Redis refuses to show them", "error", err,
			"fix", "grant +xrange %R~"+protocol.ShadowKey+" if readers set cache.Config.Shadow: unstale acl worker --shadow")
	}
	c.denied = time.Now()
}

// count records a checked report.
func (c *ShadowChecker) count(ctx context.Context, r ShadowResult) {
	c.cfg.Count(r)
	if m := store.MinuteAt(time.Now()); m != c.minute {
		c.minute, c.checked, c.confirmed = m, 0, 0
	}
	if c.checked++; r == Confirmed {
		c.confirmed++
	}
	if err := c.cfg.Note(ctx, c.minute, c.checked, c.confirmed); err != nil {
		c.cfg.Log.Debug("cannot count shadow reads", "error", err)
	}
}

// try checks one report. Everything that was committed before it is invalidated.
func (c *ShadowChecker) try(ctx context.Context, s *protocol.Shadow) ShadowResult {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m := c.cfg.Map()
	f := ShadowFinding{Shadow: *s}
	result, err := c.check(ctx, m, &f)
	if err != nil {
		c.cfg.Log.Debug("cannot check a shadow read", "key", s.Key, "error", err)
		return ShadowUnknown
	}
	if result != Confirmed {
		return result
	}
	isNew, err := c.cfg.Table.Insert(ctx, &f)
	if err != nil {
		id := string(f.id())
		if isNew = !c.unstored[id] && len(c.unstored) < keep; isNew {
			c.unstored[id] = true
			c.cfg.Log.Warn("cannot store a difference of a shadow read", "error", err, "fix", Grant)
		}
	}
	if c.cfg.Unstored(err); !isNew {
		return Known
	}
	c.cfg.Log.Warn("a cached value differs from the database", "key", f.Key, "tags", f.Tags, "outcome", f.Outcome, "entities", f.Entities,
		"leased_at", f.Lease, "loaded_at", f.Loaded, "process", f.Process, "map_version", m.Version(), "fix", f.Fix())
	return Confirmed
}

// check returns Confirmed if nothing explains the difference.
func (c *ShadowChecker) check(ctx context.Context, m *invalidation.Map, f *ShadowFinding) (ShadowResult, error) {
	names := f.names()
	if f.Loaded.After(time.Now().Add(shadowSlack)) || c.cfg.Healing() || c.cfg.Retention > 0 && time.Since(f.Lease) > c.cfg.Retention-shadowSlack || len(names) > mostTags || holds(m, names) {
		return ShadowUnknown, nil
	}
	why, err := c.cfg.Table.Explains(ctx, f.Lease, func(pattern string) bool { return reaches(pattern, names) })
	if why != "" || err != nil {
		return ShadowUnknown, err
	}
	var complete bool
	f.Entities, complete = entities(m, names)
	if others, known := c.cfg.Elsewhere(); len(f.Entities) == 0 && (!known || slices.ContainsFunc(others, func(name string) bool { return reaches(name, names) })) {
		return ShadowUnknown, nil // the key is, or may be, another outbox's
	}
	digest, err := c.cfg.Redis.EntryDigest(ctx, f.Key)
	var o *keyspace.Outage
	switch {
	case errors.As(err, &o) && o.State == keyspace.StateNoPerm && complete && len(f.Entities) == 0:
		// The account has the names of the map alone, so no row can reach this key.
	case err != nil:
		return ShadowUnknown, err
	case digest != f.Digest:
		return Gone, nil
	}
	if f.Outcome, err = c.outcome(ctx, f, names); err != nil || f.Outcome == "" || c.cfg.Healing() {
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
		err := c.cfg.Journal.SearchJournal(ctx, q, func(b store.Batch, _ []store.JournalEntry) bool {
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
