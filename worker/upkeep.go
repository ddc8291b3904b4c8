package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// A firstRow is the first row of cache_outbox, as this process saw it. Its created_at may be ahead
// of the database clock, or the clock may have been set back: the time since the process first saw
// the row is a lower bound of its wait.
type firstRow struct {
	row  *store.WaitingRow // nil: none
	seen time.Time
}

// waits returns for how long the first row of a status waits, at least.
func (f *firstRow) waits(row *store.WaitingRow) time.Duration {
	switch {
	case row == nil:
		*f = firstRow{}
		return 0
	case f.row == nil || row.ID != f.row.ID:
		*f = firstRow{row: row, seen: time.Now()}
	}
	return max(row.Age, time.Since(f.seen))
}

// A gaugeReader sets the gauges about tables. Not safe for concurrent use.
type gaugeReader struct {
	*base
	first  firstRow // as the last reading found it
	seen   *store.Seen
	unread *unreadTables
}

// setGauges sets the gauges from the tables, each table's by themselves.
func (g *gaugeReader) setGauges(ctx context.Context) {
	read := g.metrics.mysql.timeCall(callGauges)
	status, failed := g.Store.Overview.StatusByTable(ctx)
	if failed[hotTable] == nil {
		status.OldestAge = max(status.OldestAge, g.first.waits(status.First))
		g.seen.Look(g.Store.Queue.Now(time.Now()), min(status.Waiting, store.MaxExactCount), status.OldestAge)
	}
	read()
	if ctx.Err() != nil {
		return
	}
	g.metrics.observe(status, failed)
	g.unread.logUnread(failed, g.State.InOutage())
}

// unreadTables tells in the log, once for each change, which tables the gauges cannot be read from.
// Not safe for concurrent use: cron runs one reading at a time.
type unreadTables struct {
	log    *slog.Logger
	failed map[string]error // by the last reading
	told   map[string]bool  // not nil
}

// logUnread records the outcome of a reading. A table is logged when it fails twice in a row, since
// a reading may notice an outage before the loop does, which then logs it.
func (u *unreadTables) logUnread(failed map[string]error, outage bool) {
	for table, err := range failed {
		if u.failed[table] != nil && !u.told[table] && !outage {
			u.log.Warn("gauges of a table cannot be read and are NaN; trying again", "table", table, "error", err)
			u.told[table] = true
		}
	}
	for table := range u.told {
		if failed[table] == nil {
			u.log.Info("gauges of a table are read again", "table", table)
			delete(u.told, table)
		}
	}
	u.failed = failed
}

// summarySchedule is how often the journal is checked for batches without a summary. A run
// summarizes all of them, so it need not be more frequent.
const summarySchedule = "@every 10s"

// summaryRest is for how long a worker rests after a summary, as a multiple of the time that the
// summary took: a worker that is busy with rows shares its processor with it.
const summaryRest = 3

// A summariser summarizes the journal. Not safe for concurrent use: cron runs one task at a time.
type summariser struct {
	*base
	failing
}

// summarize summarizes the journal, block by block, until less than a block is left.
func (s *summariser) summarize(ctx context.Context) { s.all(ctx, summaryRest) }

// all rests after each block, for rest times as long as the block took.
func (s *summariser) all(ctx context.Context, rest time.Duration) {
	for {
		began := time.Now()
		n, err := s.Store.Summaries.Summarise(ctx)
		s.logFailure(ctx, s.base, err, "the journal cannot be summarized, and searches of it are slow; trying again", "the journal is summarized again")
		if n == 0 || err != nil {
			return
		}
		if err := sleep.For(ctx, rest*time.Since(began)); err != nil {
			return
		}
	}
}

// journalChunk is how many journal rows one statement deletes: small enough to finish in
// milliseconds.
const journalChunk = 500

func (b *base) expireJournal(ctx context.Context) {
	n, err := b.Store.Journal.ExpireJournal(ctx, b.cfg.JournalRetention, journalChunk)
	switch {
	case err != nil && ctx.Err() == nil:
		b.Log.Warn("journal rows stay longer than their retention; tried again on schedule", "error", err)
	case n > 0:
		b.Log.Debug("old journal rows deleted", "rows", n)
	}
	if err := b.Store.Summaries.ExpireSummaries(ctx); err != nil && ctx.Err() == nil {
		b.Log.Warn("summaries of the journal stay longer than it does; tried again on schedule", "error", err)
	}
}

func (b *base) forgetWorkers(ctx context.Context) {
	if err := b.Store.Workers.ForgetWorkers(ctx); err != nil && ctx.Err() == nil {
		b.Log.Debug("the notes of workers that are gone stay; tried again on schedule", "error", err)
	}
}

func (b *base) trimStale(ctx context.Context) {
	if err := b.Store.Stale.Trim(ctx); err != nil && ctx.Err() == nil {
		b.Log.Debug("old stale entries stay; tried again on schedule", "error", err)
	}
}

// foldSchedule is how often minutes are folded, and how soon the log reports that batches are not
// counted.
const foldSchedule = "@every 1m"

// A counting keeps cache_outbox_minutes small, and reports if it cannot be written. Not safe for
// concurrent use: cron runs one task at a time.
type counting struct {
	*base
	failing
	seen *store.Seen
}

func (c *counting) foldCounts(ctx context.Context) {
	err := errors.Join(c.Store.Minutes.Refused(), c.Store.Minutes.Fold(ctx))
	c.logFailure(ctx, c.base, err, "invalidations are not counted; trying again", "invalidations are counted again",
		"effect", "the shares that unstale status shows lack them", "cure", store.Grant)
}

// seenSchedule is how often a worker writes how many rows wait, and which entities it has settled.
const seenSchedule = "@every 2s"

// writeSeen writes what this worker has seen. The log of foldCounts has the reason if that is impossible.
func (c *counting) writeSeen(ctx context.Context) {
	if err := c.seen.Write(ctx); err != nil && ctx.Err() == nil {
		c.Log.Debug("cannot write what waits", "error", err)
	}
}

// lockRowsOnce is how many rows of locks a worker looks at on each schedule: a larger table takes
// several.
const lockRowsOnce = 100_000

// A lockWalk is how far this worker has looked for old rows of locks. Of cron's goroutine, which
// runs one at a time.
type lockWalk struct {
	*base
	failing
	walk store.LockWalk
}

func (l *lockWalk) expireLocks(ctx context.Context) {
	n, err := l.Store.Locks.ExpireLocks(ctx, &l.walk, l.cfg.LockRetention, lockRowsOnce)
	l.metrics.lockRows.Add(float64(n))
	l.logFailure(ctx, l.base, err, "rows of locks stay longer than their retention; tried again on schedule", "old rows of locks are removed again",
		"cure", "if a right is missing, GRANT SELECT, DELETE ON cache_outbox_locks to the worker's account; docs/accounts.md lists the grants")
	if n > 0 {
		l.Log.Debug("old rows of locks deleted", "rows", n)
	}
}

// A failing is whether the log has that a task fails. Not safe for concurrent use.
type failing struct{ told bool }

// logFailure logs once that a task fails, and once that it works again. The loop logs outages.
func (f *failing) logFailure(ctx context.Context, b *base, err error, fails, works string, args ...any) {
	switch {
	case ctx.Err() != nil || err != nil && b.State.InOutage():
	case err != nil && !f.told:
		f.told = true
		b.Log.Warn(fails, append([]any{"error", err}, args...)...)
	case err == nil && f.told:
		f.told = false
		b.Log.Info(works)
	}
}
