package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/dberr"
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
	actions *Actions
	workers *Workers
	sweeps  *Sweeps
}

// NewOverview returns the Overview of an outbox.
func NewOverview(db *session.Sessions) *Overview {
	return &Overview{db, NewActions(db), NewWorkers(db), NewSweeps(db)}
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
		st.Pause, err = o.actions.Paused(ctx)
	}
	if err == nil && st.Pause != nil {
		err = o.actions.findPauser(ctx, st.Pause)
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
	if err = o.db.ReadRows(ctx, &st.Differences, differencesSQL, MaxOldEntries); err != nil {
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
	if err := o.db.ReadRows(ctx, &rows, firstRowsSQL); err != nil {
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
	first, err := session.FindRow[WaitingRow](ctx, o.db, overdueSQL)
	if err != nil {
		return err
	}
	if first != nil && first.Micros > 0 {
		first.Age = signedMicros(first.Micros)
		st.FirstDue, st.Overdue = first, first.Age
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
	refusal, err := session.FindRow[string](ctx, o.db, refusalSQL)
	if refusal != nil {
		st.SweepError = *refusal
	}
	return err
}

func (o *Overview) readDead(ctx context.Context, st *Status) (err error) {
	if st.Dead, err = o.actions.DeadReasons(ctx); err != nil {
		return err
	}
	return o.readIDsLeft(ctx, st, "cache_outbox_dead")
}

func (o *Overview) readJournalHead(ctx context.Context, st *Status) (err error) {
	if err := o.countUp(ctx, &st.Damaged, damagedSQL); err != nil {
		return err
	}
	if st.LastBatch, err = session.FindRow[Batch](ctx, o.db, batchSQL); err == nil {
		st.LastDamaged, err = session.FindRow[Batch](ctx, o.db, lastBadSQL)
	}
	return err
}

// countUp counts up to MaxExactCount+1.
func (o *Overview) countUp(ctx context.Context, n *int, query string) error {
	return o.db.ReadRow(ctx, n, query, MaxExactCount+1)
}

// readAge reads the age of a row in microseconds. Without a row it reports false and does not
// change age.
func (o *Overview) readAge(ctx context.Context, age *time.Duration, query string) (found bool, err error) {
	n, err := session.FindRow[int64](ctx, o.db, query)
	if n == nil {
		return false, err
	}
	*age = micros(*n) // an application may write any time with plain SQL
	return true, nil
}

// A Staleness is the information, in addition to the counts of a Status, that shows whether
// anything is stale and why.
type Staleness struct {
	At           time.Time // UTC, the database's clock
	ReadOnly     bool      // the server refuses writes of accounts without a privilege for that
	Failing      []FailingRows
	DeadFor      time.Duration // since the oldest dead letter died; 0 without one
	Unswept      bool          // a request was never swept
	UnsweptFor   time.Duration // since the oldest of those; 0 if its time is in the future
	Workers      []WorkerNote  // of the last day, the most recent record first
	WorkersError error         // a privilege is missing to read them
	// a running replay: who, its progress, since when; EndsAt is not set
	Replay *Pause
	// a replay of the last day that was killed, unless a later one completed
	BrokenReplay *AuditRecord
	// StaleEntries are those that spot checks found; StaleEntriesError is why they cannot be read.
	// Left are the latest of those that no worker has unlinked and whose TTL has not ended.
	StaleEntries      StaleCount
	Left              []OldEntry
	StaleEntriesError error
}

// PartMark begins the part of a row's error that describes what was applied without lookups.
const PartMark = "; applied without lookups: "

// FailingRows are delayed rows that failed for one reason and will be retried.
type FailingRows struct {
	Reason string        `db:"reason"`
	N      int           `db:"n"`     // among the first MaxExactCount that are due
	Error  string        `db:"error"` // of one of them
	Micros int64         `db:"age"`
	Age    time.Duration // since the oldest was created
	// WaitsForClock: one is due later than a worker delayed it
	WaitsForClock bool `db:"waits_for_clock"`
}

// Contract for all: no lock (consistent reads); one row of the index named, or MaxExactCount rows
// of it. unsweptSQL skips the requests that wait for their second sweep, at most those of one
// lease.
const (
	clockSQL   = "SELECT UTC_TIMESTAMP(6), @@GLOBAL.read_only"
	failingSQL = `SELECT reason, COUNT(*) AS n, COALESCE(MAX(error), '') AS error, MAX(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) AS age,
COALESCE(MAX(due_at > UTC_TIMESTAMP(6) + INTERVAL retry_us + 1000000 MICROSECOND), 0) AS waits_for_clock
FROM (SELECT reason, error, created_at, due_at, retry_us FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?) AS first_due
WHERE reason <> '' GROUP BY reason ORDER BY n DESC, reason`

	deadForSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, died_at, UTC_TIMESTAMP(6)) FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	unsweptSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) WHERE swept_at IS NULL ORDER BY id LIMIT 1"
)

// readStaleness reads a Staleness. If the account may not read the workers, for example an account
// of an earlier version, it reads the rest.
func (o *Overview) readStaleness(ctx context.Context, st *Staleness) error {
	if err := o.db.Side.QueryRowContext(ctx, clockSQL).Scan(&st.At, &st.ReadOnly); err != nil {
		return err
	}
	err := o.db.ReadRows(ctx, &st.Failing, failingSQL, MaxExactCount)
	if err != nil {
		return err
	}
	for i := range st.Failing {
		st.Failing[i].Age = micros(st.Failing[i].Micros)
	}
	if _, err := o.readAge(ctx, &st.DeadFor, deadForSQL); err != nil {
		return err
	}
	if st.Unswept, err = o.readAge(ctx, &st.UnsweptFor, unsweptSQL); err != nil {
		return err
	}
	if st.Replay, err = o.actions.order(ctx, "replay"); err != nil {
		return err
	}
	if st.Replay == nil {
		if st.BrokenReplay, err = o.actions.brokenReplay(ctx); err != nil {
			return err
		}
	}
	if st.Workers, err = o.workers.workers(ctx); mysqlerr.Number(err) == mysqlerr.NoRight {
		st.WorkersError, err = fmt.Errorf("%w; GRANT SELECT ON cache_outbox_workers to this account", err), nil
	}
	if err != nil {
		return err
	}
	if st.StaleEntries, st.StaleEntriesError = NewStaleEntries(o.db).Count(ctx); st.StaleEntriesError == nil {
		st.Left, st.StaleEntriesError = readLeft(ctx, o.db)
	}
	if ctx.Err() != nil {
		return st.StaleEntriesError
	}
	return nil
}

// micros returns an age in microseconds as a Duration, and 0 for a time in the future.
func micros(n int64) time.Duration { return max(signedMicros(n), 0) }

// signedMicros returns an age in microseconds as a Duration, negative for a time in the future.
// Values outside the range of a Duration are clamped.
func signedMicros(n int64) time.Duration {
	return time.Duration(min(max(n, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// A PendingRow is a row that is not settled, or a repeat.
type PendingRow struct {
	RowPlace
	ID       uint64  `db:"id"` // in its table
	Entity   string  `db:"entity"`
	EntityID string  `db:"entity_id"`
	Params   *string `db:"params"` // JSON text as written; nil if there are none
	Trace    string  `db:"trace"`
	// when it was created or, if it is a dead letter, died; UTC, the database's clock
	Since time.Time `db:"since"`
	// it is not due and has not failed: an application scheduled it, or the map repeats it
	Scheduled bool `db:"scheduled"`
}

// An Object is an entity with an ID, or with any ID if that is empty. Rows whose ID is missing or
// was cut match each ID.
type Object struct{ Entity, ID string }

// A PendingQuery selects the rows that match one of its fields. One of them is required.
type PendingQuery struct {
	Objects []Object
	Trace   string
	Not     []string // all rows of other entities; nil: none
	All     bool     // all rows
}

// Contract for both: no lock (consistent reads); the first MaxExactCount rows of the primary key of
// each table, from its end for dead letters, and of the index on due_at. Then the params of those
// that match, by primary key. The second counts one more.
const (
	pendingSQL = `SELECT p.*, COALESCE(o.params, l.params, d.params) AS params FROM (SELECT * FROM (
(SELECT 'outbox' AS place, id, entity, entity_id, COALESCE(trace, '') AS trace, created_at AS since, NULL AS due_at, '' AS reason, '' AS error, 0 AS scheduled
FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id LIMIT ?)
UNION ALL (SELECT 'delayed', id, entity, entity_id, COALESCE(trace, ''), created_at, due_at, COALESCE(reason, ''), COALESCE(error, ''),
COALESCE(reason, '') = '' AND due_at > UTC_TIMESTAMP(6) FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?)
UNION ALL (SELECT 'dead', id, entity, entity_id, trace, died_at, NULL, reason, COALESCE(error, ''), 0
FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ?)) AS pending WHERE %s ORDER BY scheduled, place, id LIMIT ?) AS p
LEFT JOIN cache_outbox AS o ON p.place = 'outbox' AND o.id = p.id
LEFT JOIN cache_outbox_delayed AS l ON p.place = 'delayed' AND l.id = p.id
LEFT JOIN cache_outbox_dead AS d ON p.place = 'dead' AND d.id = p.id ORDER BY p.scheduled, p.place, p.id`
	countPendingSQL = `SELECT GREATEST((SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox LIMIT ?) AS o),
(SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_delayed LIMIT ?) AS l), (SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_dead LIMIT ?) AS d))`
)

// Pending lists the rows that match q, at most limit, among the first 10,000 of each table: dead
// letters first, and scheduled rows last. It reports whether others that are not scheduled may
// match.
func Pending(ctx context.Context, db *session.Sessions, q PendingQuery, limit int) (list []PendingRow, more bool, err error) {
	args, conditions := []any{MaxExactCount, MaxExactCount, MaxExactCount}, []string(nil)
	if q.All {
		q, conditions = PendingQuery{}, []string{"TRUE"}
	}
	if q.Trace != "" {
		conditions, args = append(conditions, "trace = ?"), append(args, q.Trace)
	}
	for _, object := range q.Objects {
		conditions = append(conditions, "entity = ? AND (? IN ('', entity_id) OR CHAR_LENGTH(entity_id) NOT BETWEEN 1 AND 255)")
		args = append(args, object.Entity, object.ID)
	}
	if len(q.Not) > 0 {
		conditions = append(conditions, "entity NOT IN ("+tuples("?", len(q.Not))+")")
		for _, entity := range q.Not {
			args = append(args, entity)
		}
	}
	if len(conditions) == 0 {
		return nil, false, nil
	}
	err = db.ReadRows(ctx, &list, fmt.Sprintf(pendingSQL, strings.Join(conditions, " OR ")), append(args, limit)...)
	counted := 0
	if err == nil {
		err = db.ReadRow(ctx, &counted, countPendingSQL, MaxExactCount+1, MaxExactCount+1, MaxExactCount+1)
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for rows that wait: %w", err)
	}
	return list, counted > MaxExactCount || len(list) == limit && !list[limit-1].Scheduled, nil
}

// A RowPlace is a place where a row is now, before it is settled or in addition, with the JSON of
// `unstale history`.
type RowPlace struct {
	Table  string     `db:"place" json:"where"`             // without "cache_outbox_": "outbox", "delayed" or "dead"
	Row    uint64     `db:"row_id" json:"row"`              // in cache_outbox; 0 for a row that was scheduled
	DueAt  *time.Time `db:"due_at" json:"due_at,omitempty"` // of a delayed row
	Reason string     `db:"reason" json:"reason,omitempty"` // of a delayed row that failed, or of a dead letter
	Error  string     `db:"error" json:"error,omitempty"`
}

// A RowPlacesQuery selects rows: by Row, or by what else is not empty.
type RowPlacesQuery struct {
	Row                     uint64 // in cache_outbox
	Entity, EntityID, Trace string
}

// maxRowPlaces bounds the result of RowPlaces per table.
const maxRowPlaces = 100

// rowPlacesSQL returns the statement with a condition for each table.
func rowPlacesSQL(outbox, delayed, dead string) string {
	return `(SELECT 'outbox' AS place, id AS row_id, NULL AS due_at, '' AS reason, '' AS error FROM cache_outbox WHERE ` + outbox + ` LIMIT ?)
UNION ALL (SELECT 'delayed', first_id, due_at, COALESCE(reason, ''), COALESCE(error, '') FROM cache_outbox_delayed WHERE ` + delayed + ` LIMIT ?)
UNION ALL (SELECT 'dead', first_id, NULL, reason, COALESCE(error, '') FROM cache_outbox_dead WHERE ` + dead + ` LIMIT ?)`
}

// Contract for both: no lock (a consistent read). By row: found by primary key or by the indexes on
// first_id. By names: reads the tables until enough rows match, since only operators ask.
var (
	placesOfRowSQL   = rowPlacesSQL("id = ?", "first_id = ?", "first_id = ?")
	placesOfNamesSQL = rowPlacesSQL(namesFilter, namesFilter, namesFilter)
)

const namesFilter = "(? = '' OR entity = ?) AND (? = '' OR entity_id = ?) AND (? = '' OR trace = ?)"

// RowPlaces returns where rows are now, at most 100 per table: a row is nowhere if it is settled,
// and in several places if the map asks for repeats.
func (o *Actions) RowPlaces(ctx context.Context, q RowPlacesQuery) (list []RowPlace, err error) {
	sql, args := placesOfRowSQL, []any{q.Row}
	if q.Row == 0 {
		sql, args = placesOfNamesSQL, []any{q.Entity, q.Entity, q.EntityID, q.EntityID, q.Trace, q.Trace}
	}
	args = slices.Repeat(append(args, maxRowPlaces), 3)
	err = o.db.ReadRows(ctx, &list, sql, args...)
	return list, dberr.Wrap(err, "look for rows that are not settled")
}

// A ConflictKind is a kind of conflict between the databases that workers serve with one Redis.
type ConflictKind string

// The kinds of conflicts.
const (
	ConflictRestored ConflictKind = "restored" // the database is older than Redis
	ConflictID       ConflictKind = "id"       // two databases have one ID
)

// ConflictKinds lists all kinds.
var ConflictKinds = []ConflictKind{ConflictRestored, ConflictID}

// A Conflict is a problem with the data that Redis has about this outbox or another one. Workers
// detect it: see package status.
type Conflict struct {
	Kind ConflictKind
	Text string // one sentence, without final punctuation
	Cure string // what to do
}

// FewIDs is the number of IDs left below which an insert must have chosen an ID: numbered
// automatically, IDs do not reach half of their range in a thousand years.
const FewIDs = math.MaxUint64/2 + 1

// NumberedTables are the tables with IDs that applications, operators and triggers insert into.
var NumberedTables = []string{"cache_outbox", "cache_outbox_delayed", "cache_outbox_dead"}

// IDsLeft returns how many more rows each of NumberedTables can number. At 0, every insert fails.
// It ends within the timeout of one statement.
func (o *Overview) IDsLeft(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	var st Status
	for _, table := range NumberedTables {
		if err := o.readIDsLeft(ctx, &st, table); err != nil {
			return nil, fmt.Errorf("read the next ID of %s: %w", table, err)
		}
	}
	return st.IDsLeft, nil
}

// readIDsLeft adds a table to Status.IDsLeft.
func (o *Overview) readIDsLeft(ctx context.Context, st *Status, table string) error {
	next, err := o.db.NextID(ctx, table)
	if err != nil {
		return err
	}
	if st.IDsLeft == nil {
		st.IDsLeft = map[string]uint64{}
	}
	st.IDsLeft[table] = math.MaxUint64 - next
	return nil
}
