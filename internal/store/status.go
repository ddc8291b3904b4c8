package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// MaxExactCount is the limit up to which Status counts waiting rows. Counting more would cost more
// than the result is worth.
const MaxExactCount = 10_000

// Status is the current state of the tables. Counts of several tables are not one snapshot.
type Status struct {
	// rows in cache_outbox; MaxExactCount+1 means "more"
	Waiting int
	// the greatest age of the first hundred waiting rows, by the database's clock; 0 without rows
	OldestAge time.Duration
	First     *WaitingRow // the row with the lowest ID, nil without rows
	// the first of those hundred whose created_at is in the future: how long it waits is unknown
	Ahead       *WaitingRow
	Delayed     int           // rows in cache_outbox_delayed, counted likewise
	Overdue     time.Duration // how long the first of them has been due; 0 if none is
	FirstDue    *WaitingRow   // the first due row, with Overdue as its age; nil if none is due
	Sweeps      int           // patterns and sets that wait, counted likewise
	OldestSweep time.Duration // of the request with the lowest ID; 0 without one
	// those of Sweeps that were swept once and wait for their second sweep, counted likewise
	Settling int
	Scan     *SweepProgress // nil unless a keyspace scan is running
	// nil unless index sets are being cleared, for longer than the interval of the progress record
	Sets *SweepProgress
	// SweepsRefused counts the sweeps that Redis has refused, counted likewise. SweepError is the
	// last such error.
	SweepsRefused int
	SweepError    string
	SweepFailure  *SweepFailure // nil unless sweeps fail as a whole
	Dead          map[string]int
	LastBatch     *Batch            // nil if the journal is empty
	Pause         *Pause            // nil unless all workers are paused
	IDsLeft       map[string]uint64 // by table, see Overview.IDsLeft
	// Damaged counts the corrupt journal rows that healing found and set aside, counted likewise.
	// LastDamaged is the newest of them.
	Damaged     int
	LastDamaged *Batch
	Source      string // the ID of the outbox, "" if it cannot be read
	SourceError error  // why it cannot
	AskedRedis  bool   // Workers includes those in Redis: see package status
	RedisError  error  // why it does not
	// Conflicts are the conflicts that workers' records in Redis show. ConflictsError is why they
	// cannot be read.
	Conflicts      []Conflict
	ConflictsError error
	// Figures are the shares of invalidations that were in time. FiguresError is why they cannot be
	// read; then they are empty.
	Figures      Figures
	FiguresError error
	// Differences are the latest cached values that differed from the database.
	// OldEntriesError is why they, or Left, cannot be read, or why Redis was not read.
	Differences     []OldEntry
	OldEntriesError error
	// Readers are the readers that reported lately and use generated code.
	Readers []Reader
	Staleness
}

// DeadTotal returns how many dead letters there are.
func (s *Status) DeadTotal() (n int) {
	for _, k := range s.Dead {
		n += k
	}
	return n
}

// A Reader is a process that reads through generated code.
type Reader struct {
	Process string
	Reads   []string // fingerprints of the maps that the code was generated from
}

// A WaitingRow is a row of cache_outbox, or of cache_outbox_delayed.
type WaitingRow struct {
	ID     uint64 `db:"id"`
	Entity string `db:"entity"`
	Micros int64  `db:"age"`
	// by the database's clock; negative if created_at, which any writer may set, is in the future
	Age time.Duration
}

// Contract for all: no lock (consistent reads); at most MaxExactCount+1 entries of one index each.
// Finding the last batch reads the sweeps since then.
const (
	countSQL       = "SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT ?) AS counted"
	firstRowsSQL   = "SELECT id, entity, TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) AS age FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT 100"
	oldestSweepSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	overdueSQL     = "SELECT id, entity, TIMESTAMPDIFF(MICROSECOND, due_at, UTC_TIMESTAMP(6)) AS age FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT 1"
	settlingSQL    = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps WHERE swept_at IS NOT NULL LIMIT ?) AS counted"
	refusedSQL     = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_sweeps WHERE attempts > 0 LIMIT ?) AS counted"
	refusalSQL     = "SELECT error FROM cache_outbox_sweeps WHERE attempts > 0 ORDER BY not_before DESC LIMIT 1"
	batchSQL       = "SELECT id, worker, settled_at, row_count, map_version FROM cache_outbox_journal WHERE row_count > 0 ORDER BY id DESC LIMIT 1"
	damagedSQL     = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_journal FORCE INDEX (beats) WHERE epoch = '" + DamagedEpoch + "' LIMIT ?) AS counted"
	lastBadSQL     = "SELECT id, worker, settled_at, row_count, map_version FROM cache_outbox_journal FORCE INDEX (beats) " +
		"WHERE epoch = '" + DamagedEpoch + "' ORDER BY beat DESC, id DESC LIMIT 1"
)

// An Overview reads the state of all tables. Safe for concurrent use.
type Overview struct {
	db      *session.Sessions
	orders  *Orders
	workers *Workers
	sweeps  *Sweeps
}

// NewOverview returns the Overview of an outbox.
func NewOverview(db *session.Sessions) *Overview {
	return &Overview{db, NewOrders(db), NewWorkers(db), NewSweeps(db)}
}

// statusTables are the tables of a Status, each with the function that reads its part.
var statusTables = []struct {
	name string
	read func(*Overview, context.Context, *Status) error
}{
	{"cache_outbox", (*Overview).readHot},
	{"cache_outbox_delayed", (*Overview).readDelayed},
	{"cache_outbox_sweeps", (*Overview).readSweeps},
	{"cache_outbox_dead", (*Overview).readDead},
	{"cache_outbox_journal", (*Overview).readJournalHead},
}

// Status reads a Status. It returns an error if any table cannot be read, and ends within the
// timeout of one statement.
func (o *Overview) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	var st Status
	var err error
	for _, table := range statusTables {
		if err = table.read(o, ctx, &st); err != nil {
			err = fmt.Errorf("read %s: %w", table.name, err)
			break
		}
	}
	if err == nil {
		st.Pause, err = o.orders.Paused(ctx)
	}
	if err == nil && st.Pause != nil {
		err = o.orders.findPauser(ctx, st.Pause)
	}
	if err == nil {
		st.Scan, err = o.sweeps.Progress(ctx, SweepPattern)
	}
	if err == nil {
		st.Sets, err = o.sweeps.Progress(ctx, SweepSet)
	}
	if err == nil {
		st.SweepFailure, err = o.sweeps.SweepFailure(ctx)
	}
	if err == nil {
		err = o.readStaleness(ctx, &st.Staleness)
	}
	if err != nil {
		return Status{}, fmt.Errorf("read status: %w", err)
	}
	st.Source, st.SourceError = o.db.Source(ctx)
	if st.Figures, st.FiguresError = ReadFigures(ctx, o.db); st.FiguresError != nil {
		st.Figures = Figures{}
	}
	if st.Differences, err = readDifferences(ctx, o.db); err != nil {
		switch mysqlerr.Number(err) {
		case mysqlerr.NoRight, mysqlerr.NoColumnRight, mysqlerr.NoTable:
			st.OldEntriesError = err
		default:
			return Status{}, fmt.Errorf("read status: %w", err)
		}
	}
	return st, nil
}

// StatusByTable reads a Status without Pause, Scan, Sets, SweepFailure and Staleness, each table
// separately. If a table cannot be read, failed has its error, and its fields in st are undefined.
// Each table may take as long as one statement.
func (o *Overview) StatusByTable(ctx context.Context) (st Status, failed map[string]error) {
	failed = map[string]error{}
	for _, table := range statusTables {
		limited, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
		if err := table.read(o, limited, &st); err != nil {
			failed[table.name] = err
		}
		cancel()
	}
	return st, failed
}

func (o *Overview) readHot(ctx context.Context, st *Status) error {
	if err := o.countUp(ctx, &st.Waiting, fmt.Sprintf(countSQL, "cache_outbox")); err != nil {
		return err
	}
	var rows []WaitingRow
	if err := o.db.Side.SelectContext(ctx, &rows, firstRowsSQL); err != nil {
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
	return o.readIDsLeft(ctx, st, "cache_outbox")
}

func (o *Overview) readDelayed(ctx context.Context, st *Status) error {
	if err := o.countUp(ctx, &st.Delayed, fmt.Sprintf(countSQL, "cache_outbox_delayed")); err != nil {
		return err
	}
	var rows []WaitingRow
	if err := o.db.Side.SelectContext(ctx, &rows, overdueSQL); err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].Micros > 0 {
		st.FirstDue, st.Overdue = &rows[0], signedMicros(rows[0].Micros)
		st.FirstDue.Age = st.Overdue
	}
	return o.readIDsLeft(ctx, st, "cache_outbox_delayed")
}

func (o *Overview) readSweeps(ctx context.Context, st *Status) error {
	for query, n := range map[string]*int{
		fmt.Sprintf(countSQL, "cache_outbox_sweeps"): &st.Sweeps, refusedSQL: &st.SweepsRefused, settlingSQL: &st.Settling,
	} {
		if err := o.countUp(ctx, n, query); err != nil {
			return err
		}
	}
	if _, err := o.readAge(ctx, &st.OldestSweep, oldestSweepSQL); err != nil {
		return err
	}
	var refusals []string
	if err := o.db.Side.SelectContext(ctx, &refusals, refusalSQL); err != nil {
		return err
	}
	st.SweepError = strings.Join(refusals, "")
	return nil
}

func (o *Overview) readDead(ctx context.Context, st *Status) (err error) {
	if st.Dead, err = o.orders.DeadReasons(ctx); err != nil {
		return err
	}
	return o.readIDsLeft(ctx, st, "cache_outbox_dead")
}

func (o *Overview) readJournalHead(ctx context.Context, st *Status) error {
	if err := o.countUp(ctx, &st.Damaged, damagedSQL); err != nil {
		return err
	}
	for query, batch := range map[string]**Batch{batchSQL: &st.LastBatch, lastBadSQL: &st.LastDamaged} {
		var found []Batch
		if err := o.db.Side.SelectContext(ctx, &found, query); err != nil {
			return err
		}
		if len(found) > 0 {
			*batch = &found[0]
		}
	}
	return nil
}

// countUp counts up to MaxExactCount+1.
func (o *Overview) countUp(ctx context.Context, n *int, query string) error {
	return o.db.Side.GetContext(ctx, n, query, MaxExactCount+1)
}

// readAge reads the age of a row in microseconds. Without a row it reports false and does not
// change age.
func (o *Overview) readAge(ctx context.Context, age *time.Duration, query string) (found bool, err error) {
	var ages []int64
	if err := o.db.Side.SelectContext(ctx, &ages, query); err != nil {
		return false, err
	}
	for _, n := range ages { // an application may write any time with plain SQL
		*age = micros(n)
	}
	return len(ages) > 0, nil
}
