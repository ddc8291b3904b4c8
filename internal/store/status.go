package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MaxExactCount is how far Status counts waiting rows: beyond it a count would cost more than it tells.
const MaxExactCount = 10_000

// Status is what the tables say now. Counts of several tables are not one snapshot.
type Status struct {
	Waiting     int            // rows in cache_outbox, at most MaxExactCount+1, which means "more"
	OldestAge   time.Duration  // the greatest of the first hundred waiting rows, by the database's clock; 0 without one
	First       *WaitingRow    // the one with the lowest id, nil without one
	Ahead       *WaitingRow    // the first of those hundred whose created_at lies ahead: how long it waits is not known
	Delayed     int            // rows in cache_outbox_delayed, counted likewise
	Overdue     time.Duration  // how long the first of them has been due; 0 if none is
	FirstDue    *WaitingRow    // that one, with Overdue as its age; nil if none is due
	Sweeps      int            // patterns and sets that wait, counted likewise
	OldestSweep time.Duration  // of the request with the lowest id; 0 without one
	Settling    int            // those among them that were swept once and wait for the settling sweep, counted likewise
	Scan        *SweepProgress // nil unless a scan of the keyspace is under way
	Sets        *SweepProgress // nil unless index sets are being taken, for more than a moment
	// SweepsRefused are those among them that Redis has refused, counted likewise; SweepError is the last such error.
	SweepsRefused int
	SweepError    string
	SweepFailure  *SweepFailure // nil unless sweeps fail as a whole
	Dead          map[string]int
	LastBatch     *Batch            // nil if the journal is empty
	Pause         *Pause            // nil unless all workers are paused
	IDsLeft       map[string]uint64 // by table, see Store.IDsLeft
	// Damaged are the batches of the journal that healing found unreadable and set aside, counted likewise; LastDamaged
	// is the newest of them.
	Damaged     int
	LastDamaged *Batch
	Source      string // the id of the outbox, "" if it cannot be read
	SourceError error  // why it cannot
	AskedRedis  bool   // Workers has those that Redis knows, too: see package registry
	RedisError  error  // why it has not
	// Conflicts are those that workers' records in Redis show; ConflictsError is why they cannot be read.
	Conflicts      []Conflict
	ConflictsError error
	Staleness
}

// A WaitingRow is a row of cache_outbox, or of cache_outbox_delayed.
type WaitingRow struct {
	ID     uint64        `db:"id"`
	Entity string        `db:"entity"`
	Micros int64         `db:"age"`
	Age    time.Duration // by the database's clock; below 0 if created_at, which anybody may write, lies ahead of it
}

// A Batch is the head of a journal row.
type Batch struct {
	ID         uint64    `db:"id"`
	Worker     string    `db:"worker"`
	SettledAt  time.Time `db:"settled_at"` // UTC, the database's clock
	Rows       int       `db:"row_count"`
	MapVersion string    `db:"map_version"`
	// Born is Settlement's, of the last time that the batch was unlinked. Only ReadJournal and ClaimHeal read it.
	Born uint64 `db:"born_us"`
	// Journey is nil where it is not known. Only SearchJournal reads it.
	Journey *Journey `db:"-"`
}

// BornAt is Born, nil if it is not known.
func (b *Batch) BornAt() *time.Time {
	if b.Born == 0 {
		return nil
	}
	t := time.UnixMicro(int64(b.Born)).UTC()
	return &t
}

// Contract for all: no lock (consistent reads); at most MaxExactCount+1 entries of one index each, the dead letters'
// count all of the index on reason, which only operators let grow, the last batch's the sweeps since then.
const (
	countSQL       = "SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT ?) AS counted"
	firstRowsSQL   = "SELECT id, entity, TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) AS age FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT 100"
	oldestSweepSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	overdueSQL     = "SELECT id, entity, TIMESTAMPDIFF(MICROSECOND, due_at, UTC_TIMESTAMP(6)) AS age FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT 1"
	settlingSQL    = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps WHERE swept_at IS NOT NULL LIMIT ?) AS counted"
	refusedSQL     = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps WHERE attempts > 0 LIMIT ?) AS counted"
	refusalSQL     = "SELECT error FROM cache_outbox_sweeps WHERE attempts > 0 ORDER BY not_before DESC LIMIT 1"
	deadSQL        = "SELECT reason, COUNT(*) AS n FROM cache_outbox_dead GROUP BY reason"
	batchSQL       = "SELECT id, worker, settled_at, row_count, map_version FROM cache_outbox_journal WHERE row_count > 0 ORDER BY id DESC LIMIT 1"
	damagedSQL     = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_journal FORCE INDEX (beats) WHERE epoch = '" + damagedEpoch + "' LIMIT ?) AS counted"
	lastBadSQL     = "SELECT id, worker, settled_at, row_count, map_version FROM cache_outbox_journal FORCE INDEX (beats) " +
		"WHERE epoch = '" + damagedEpoch + "' ORDER BY beat DESC, id DESC LIMIT 1"
)

// statusTables are the tables that a Status counts, each with what reads its part.
var statusTables = []struct {
	name string
	read func(*Store, context.Context, *Status) error
}{
	{"cache_outbox", (*Store).readHot},
	{"cache_outbox_delayed", (*Store).readDelayed},
	{"cache_outbox_sweeps", (*Store).readSweeps},
	{"cache_outbox_dead", (*Store).readDead},
	{"cache_outbox_journal", (*Store).readJournalHead},
}

// Status reads a Status. It fails with the first table that cannot be read, and ends within the timeout of one
// statement.
func (s *Store) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var st Status
	var err error
	for _, table := range statusTables {
		if err = table.read(s, ctx, &st); err != nil {
			err = fmt.Errorf("read %s: %w", table.name, err)
			break
		}
	}
	if err == nil {
		st.Pause, err = s.Paused(ctx)
	}
	if err == nil && st.Pause != nil {
		err = s.findPauser(ctx, st.Pause)
	}
	if err == nil {
		st.Scan, err = s.progress(ctx, SweepPattern)
	}
	if err == nil {
		st.Sets, err = s.progress(ctx, SweepSet)
	}
	if err == nil {
		st.SweepFailure, err = s.sweepFailure(ctx)
	}
	if err == nil {
		err = s.readStaleness(ctx, &st.Staleness)
	}
	if err != nil {
		return Status{}, fmt.Errorf("read status: %w", err)
	}
	st.Source, st.SourceError = s.Source(ctx)
	return st, nil
}

// StatusByTable reads a Status without Pause, Scan, Sets, SweepFailure and Staleness, each table by itself: one that cannot be
// read is in failed with its error, and what it would tell is not defined. Each table may take as long as one
// statement.
func (s *Store) StatusByTable(ctx context.Context) (st Status, failed map[string]error) {
	failed = map[string]error{}
	for _, table := range statusTables {
		limited, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
		if err := table.read(s, limited, &st); err != nil {
			failed[table.name] = err
		}
		cancel()
	}
	return st, failed
}

func (s *Store) readHot(ctx context.Context, st *Status) error {
	if err := s.countUp(ctx, &st.Waiting, fmt.Sprintf(countSQL, "cache_outbox")); err != nil {
		return err
	}
	var rows []WaitingRow
	if err := s.side.SelectContext(ctx, &rows, firstRowsSQL); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		r.Age = signedMicros(r.Micros)
		st.OldestAge = max(st.OldestAge, r.Age)
		if r.Age < 0 && st.Ahead == nil {
			st.Ahead = r
		}
		st.First = &rows[0]
	}
	return s.readIDsLeft(ctx, st, "cache_outbox")
}

func (s *Store) readDelayed(ctx context.Context, st *Status) error {
	if err := s.countUp(ctx, &st.Delayed, fmt.Sprintf(countSQL, "cache_outbox_delayed")); err != nil {
		return err
	}
	var rows []WaitingRow
	if err := s.side.SelectContext(ctx, &rows, overdueSQL); err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].Micros > 0 {
		st.FirstDue, st.Overdue = &rows[0], signedMicros(rows[0].Micros)
		st.FirstDue.Age = st.Overdue
	}
	return s.readIDsLeft(ctx, st, "cache_outbox_delayed")
}

func (s *Store) readSweeps(ctx context.Context, st *Status) error {
	for query, n := range map[string]*int{
		fmt.Sprintf(countSQL, "cache_outbox_sweeps"): &st.Sweeps, refusedSQL: &st.SweepsRefused, settlingSQL: &st.Settling,
	} {
		if err := s.countUp(ctx, n, query); err != nil {
			return err
		}
	}
	if _, err := s.readAge(ctx, &st.OldestSweep, oldestSweepSQL); err != nil {
		return err
	}
	var refusals []string
	if err := s.side.SelectContext(ctx, &refusals, refusalSQL); err != nil {
		return err
	}
	st.SweepError = strings.Join(refusals, "")
	return nil
}

func (s *Store) readDead(ctx context.Context, st *Status) error {
	var dead []struct {
		Reason string `db:"reason"`
		N      int    `db:"n"`
	}
	if err := s.side.SelectContext(ctx, &dead, deadSQL); err != nil {
		return err
	}
	st.Dead = map[string]int{}
	for _, d := range dead {
		st.Dead[d.Reason] = d.N
	}
	return s.readIDsLeft(ctx, st, "cache_outbox_dead")
}

func (s *Store) readJournalHead(ctx context.Context, st *Status) error {
	if err := s.countUp(ctx, &st.Damaged, damagedSQL); err != nil {
		return err
	}
	for query, batch := range map[string]**Batch{batchSQL: &st.LastBatch, lastBadSQL: &st.LastDamaged} {
		var found []Batch
		if err := s.side.SelectContext(ctx, &found, query); err != nil {
			return err
		}
		if len(found) > 0 {
			*batch = &found[0]
		}
	}
	return nil
}

// countUp counts as far as MaxExactCount+1.
func (s *Store) countUp(ctx context.Context, n *int, query string) error {
	return s.side.GetContext(ctx, n, query, MaxExactCount+1)
}

// readAge reads the age of a row in microseconds, and leaves age alone without one, which it reports.
func (s *Store) readAge(ctx context.Context, age *time.Duration, query string) (found bool, err error) {
	var ages []int64
	if err := s.side.SelectContext(ctx, &ages, query); err != nil {
		return false, err
	}
	for _, n := range ages { // plain SQL may write any time
		*age = micros(n)
	}
	return len(ages) > 0, nil
}
