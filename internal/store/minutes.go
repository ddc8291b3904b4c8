package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// rest is how long a Table counts nothing after MySQL has refused to.
const rest = time.Minute

// Grant is the fix for an account that may not count.
const Grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON cache_outbox_minutes to the worker's account; docs/accounts.md lists the grants"

// AddSQL counts a batch. Contract: an exclusive lock until the transaction ends, on one row by
// primary key, which only this process writes. Its effect ends with the transaction.
const AddSQL = `INSERT INTO cache_outbox_minutes (minute, worker, batches, rows_settled, within_100ms, within_1s, within_10s, dead)
VALUES (UNIX_TIMESTAMP() DIV 60, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE batches = batches + ?, rows_settled = rows_settled + ?, within_100ms = within_100ms + ?,
within_1s = within_1s + ?, within_10s = within_10s + ?, dead = dead + ?`

// Minutes is cache_outbox_minutes, as one process writes it. Safe for concurrent use.
type Minutes struct {
	db      *session.Sessions
	worker  string
	refusal atomic.Pointer[refusal] // nil unless MySQL has refused to count the last batch
}

// A refusal is why nothing is counted until a time.
type refusal struct {
	err   error
	until time.Time
}

// NewMinutes returns the Table of an outbox. The ID identifies the process, as in cache_outbox_workers. A
// process that only reads may leave it empty.
func NewMinutes(db *session.Sessions, worker string) *Minutes {
	return &Minutes{db: db, worker: worker}
}

// Add counts a batch in the transaction that settles it. It never fails a batch for long: if the
// account lacks a privilege, or the table is locked, it counts nothing for a minute, and
// [Table.Refused] returns why. After an error, the transaction must be rolled back.
func (t *Minutes) Add(ctx context.Context, tx *sql.Tx, c Counts) error {
	if r := t.refusal.Load(); c == (Counts{}) || r != nil && time.Now().Before(r.until) {
		return nil
	}
	add := []any{c.Batches, c.Rows, c.Within100ms, c.Within1s, c.Within10s, c.Dead}
	_, err := tx.ExecContext(ctx, AddSQL, slices.Concat([]any{t.worker}, add, add)...)
	switch mysqlerr.Number(err) {
	case mysqlerr.NoRight, mysqlerr.NoColumnRight, mysqlerr.NoTable: // before it did anything
		t.refusal.Store(&refusal{err, time.Now().Add(rest)})
		return nil
	case mysqlerr.LockTimeout: // which has rolled back the transaction, depending on the server
		t.refusal.Store(&refusal{err, time.Now().Add(rest)})
	}
	if err == nil {
		t.refusal.Store(nil)
	}
	return dberr.Wrap(err, "count the batch")
}

// Refused returns why batches are not counted, or nil.
func (t *Minutes) Refused() error {
	if r := t.refusal.Load(); r != nil {
		return r.err
	}
	return nil
}

// A Minute is a minute of the database's clock, as the number of minutes since 1970.
type Minute uint32

// MinuteAt returns the minute of a time of the database's clock.
func MinuteAt(t time.Time) Minute { return Minute(t.Unix() / 60) }

const (
	hour  = 60
	day   = 24 * hour
	month = 30 * day
	// keep is how long rows stay per minute and worker: longer than the window of a day.
	keep = day + hour
)

// Limits are the times within which invalidations are counted, in ascending order.
var Limits = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}

// Counts are the counts of one settled batch.
type Counts struct {
	// Batches is how many claims of the batch unlinked at least one key or tag. Each can be sampled
	// by a spot check.
	Batches uint64
	// Rows are the settled rows with at least one key or tag. They do not include scheduled rows
	// and repeats, which are late on purpose, and rows with only patterns and index sets, whose
	// keys a sweep unlinks later.
	Rows uint64
	// Rows whose keys were unlinked at most this long after they became visible. Within10s includes
	// Within1s, which includes Within100ms.
	Within100ms, Within1s, Within10s uint64
	// Dead are the rows that became dead letters. They are not in Rows. If an operator retries one,
	// it counts again, as a row that was late.
	Dead uint64
}

// Add counts a settled row whose keys were unlinked at most late after it became visible.
func (c *Counts) Add(late time.Duration) {
	c.Rows++
	if late <= 100*time.Millisecond {
		c.Within100ms++
	}
	if late <= time.Second {
		c.Within1s++
	}
	if late <= 10*time.Second {
		c.Within10s++
	}
}

// Merge adds other counts.
func (c *Counts) Merge(more Counts) {
	c.Batches, c.Rows, c.Dead = c.Batches+more.Batches, c.Rows+more.Rows, c.Dead+more.Dead
	c.Within100ms, c.Within1s, c.Within10s = c.Within100ms+more.Within100ms, c.Within1s+more.Within1s, c.Within10s+more.Within10s
}

// Checks are the results of all spot checks of the batches that this process settled in one minute.
// A check is one key of one batch, even if it takes several looks.
type Checks struct {
	Sampled      uint64 `db:"sampled" json:"batches_sampled"` // batches with at least one check that is not unknown
	EntryBatches uint64 `db:"entry_batches" json:"-"`         // of Sampled: with at least one entry found
	StaleBatches uint64 `db:"stale_batches" json:"-"`         // of Sampled: with at least one stale entry found

	Checked   uint64 `db:"checked" json:"checked"`       // WithEntry, Absent and Unknown
	WithEntry uint64 `db:"with_entry" json:"with_entry"` // an entry with a lease time was found, stale or not
	Stale     uint64 `db:"stale" json:"stale"`           // of WithEntry
	Absent    uint64 `db:"absent" json:"absent"`
	Unknown   uint64 `db:"unknown" json:"unknown"`
	Repaired  uint64 `db:"repaired" json:"repaired"` // stale entries that were unlinked
}

// Contract for both: an exclusive lock for one statement on one row by primary key, which only this
// process writes. Repeating it is harmless.
const (
	checksSQL = `INSERT INTO cache_outbox_minutes
(minute, worker, sampled, entry_batches, stale_batches, checked, with_entry, stale, absent, unknown, repaired)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE sampled = ?, entry_batches = ?, stale_batches = ?, checked = ?, with_entry = ?, stale = ?, absent = ?, unknown = ?, repaired = ?`
	shadowsSQL = `INSERT INTO cache_outbox_minutes (minute, worker, shadow_reads, confirmed) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE shadow_reads = ?, confirmed = ?`
)

// NoteChecks writes the results of a minute. They replace those that this process wrote for the
// minute before, so c must be complete. The batches were settled in that minute, even if their
// checks end later: the batches of the minute are the weight of c. NoteChecks must not
// be called for a minute that is older than a day.
func (t *Minutes) NoteChecks(ctx context.Context, m Minute, c Checks) error {
	return t.addTotals(ctx, checksSQL, m, c.Sampled, c.EntryBatches, c.StaleBatches, c.Checked, c.WithEntry, c.Stale, c.Absent, c.Unknown, c.Repaired)
}

// NoteShadows writes how many shadow reads this process evaluated in a minute, and how many of them
// were confirmed to differ. Both replace the numbers that it wrote for the minute before.
func (t *Minutes) NoteShadows(ctx context.Context, m Minute, reads, confirmed uint64) error {
	return t.addTotals(ctx, shadowsSQL, m, reads, confirmed)
}

// addTotals writes totals of this process. The statement takes them twice.
func (t *Minutes) addTotals(ctx context.Context, query string, m Minute, totals ...any) error {
	args := slices.Concat([]any{m, t.worker}, totals, totals)
	return dberr.Wrap(t.db.Exec(ctx, query, args...), "write checks of a minute")
}

// Sums are the sums of rows of cache_outbox_minutes. The weighted sums, W and WW, estimate the
// sums of all batches of a minute and worker: a minute with few batches has more of them sampled.
type Sums struct {
	Batches     uint64 `db:"batches"`
	Rows        uint64 `db:"rows_settled"`
	Within100ms uint64 `db:"within_100ms"`
	Within1s    uint64 `db:"within_1s"`
	Within10s   uint64 `db:"within_10s"`
	Dead        uint64 `db:"dead"`

	Checks
	Shadows   uint64 `db:"shadow_reads"`
	Confirmed uint64 `db:"confirmed"`

	WSampled       float64 `db:"w_sampled"`
	WEntryBatches  float64 `db:"w_entry_batches"`
	WStaleBatches  float64 `db:"w_stale_batches"`
	WKnown         float64 `db:"w_known"`
	WWithEntry     float64 `db:"w_with_entry"`
	WStale         float64 `db:"w_stale"`
	WWSampled      float64 `db:"ww_sampled"`
	WWEntryBatches float64 `db:"ww_entry_batches"`
}

// columns are the columns of Sums, and sums are the expressions that add them up. In a row that is
// folded already, the weighted sums are columns.
var columns, sums = func() (string, string) {
	// Batches of which nothing is known count by the share of the checks that are unknown.
	const weight = "(GREATEST(batches * (with_entry + absent) / (NULLIF(checked, 0) + 0E0), sampled) / (NULLIF(sampled, 0) + 0E0))"
	var names, terms []string
	add := func(name, term string) {
		names, terms = append(names, name), append(terms, "COALESCE(SUM("+term+"), 0) AS "+name)
	}
	for name := range strings.FieldsSeq(`batches rows_settled within_100ms within_1s within_10s dead
sampled entry_batches stale_batches checked with_entry stale absent unknown repaired shadow_reads confirmed`) {
		add(name, name)
	}
	weighted := func(name, term string) { add(name, "IF(worker = '', "+name+", "+term+")") }
	for _, name := range []string{"sampled", "entry_batches", "stale_batches", "with_entry", "stale"} {
		weighted("w_"+name, name+" * "+weight)
	}
	weighted("w_known", "(with_entry + absent) * "+weight)
	for _, name := range []string{"sampled", "entry_batches"} {
		weighted("ww_"+name, name+" * "+weight+" * "+weight)
	}
	return strings.Join(names, ", "), strings.Join(terms, ", ")
}()

// Contract: the first reads no row or one, by the primary key, without a lock, behind whole hours
// of one row each. The second takes exclusive locks on the rows of one hour, which keeps other
// workers from folding them; it returns 0 if another worker has folded them meanwhile. The others
// change rows of that hour only. Repeating all of them is harmless.
const (
	unfoldedSQL = `SELECT minute DIV 60 * 60 FROM cache_outbox_minutes
WHERE worker <> '' AND minute < (UNIX_TIMESTAMP() DIV 60 - ?) DIV 60 * 60 ORDER BY minute LIMIT 1`
	lockHourSQL   = "SELECT COUNT(*) FROM cache_outbox_minutes WHERE minute >= ? AND minute < ? AND worker <> '' FOR UPDATE"
	removeHourSQL = "DELETE FROM cache_outbox_minutes WHERE minute >= ? AND minute < ? AND worker <> ''"
)

// foldSQL adds up the rows of an hour, and the row that it is folded into already, if a worker
// wrote others later. Contract: as above.
var foldSQL = "REPLACE INTO cache_outbox_minutes (minute, worker, " + columns + ") SELECT ?, '', " + sums +
	" FROM cache_outbox_minutes WHERE minute >= ? AND minute < ?"

// Contract: exclusive locks on the rows that it deletes, by a range of the primary key. Repeating
// it is harmless.
const expireMinutesSQL = "DELETE FROM cache_outbox_minutes WHERE minute < UNIX_TIMESTAMP() DIV 60 - ?"

// Fold folds the rows of each hour that is older than 25 hours into one, and deletes what is older
// than 30 days. So the table has at most some 1,560 rows per worker and 720 more. It is safe to run
// in several workers.
func (t *Minutes) Fold(ctx context.Context) error {
	for {
		start, err := session.FindRow[Minute](ctx, t.db, unfoldedSQL, keep)
		switch {
		case start != nil:
			err = t.foldHour(ctx, *start)
		case err == nil: // none is left
			return dberr.Wrap(t.db.Exec(ctx, expireMinutesSQL, month), "fold minutes into hours")
		}
		if err != nil {
			return fmt.Errorf("fold minutes into hours: %w", err)
		}
	}
}

func (t *Minutes) foldHour(ctx context.Context, start Minute) error {
	return t.db.InTx(ctx, t.db.Side, func(ctx context.Context, tx *sqlx.Tx) error {
		var found int
		if err := tx.GetContext(ctx, &found, lockHourSQL, start, start+hour); err != nil || found == 0 {
			return err
		}
		if _, err := tx.ExecContext(ctx, foldSQL, start, start, start+hour); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, removeHourSQL, start, start+hour)
		return err
	})
}

// MaxEntities is how many entities of a minute are noted by name, those with the most rows. The
// others count together, under the empty name.
const MaxEntities = 50

// An Entity has the counts of the settled rows of an entity, as in Counts.
type Entity struct{ Rows, Within1s uint64 }

// Entities are counts by entity.
type Entities map[string]Entity

// Add counts a row, as [Counts.Add] does.
func (e Entities) Add(entity string, late time.Duration) {
	n := e[entity]
	n.Rows++
	if late <= time.Second {
		n.Within1s++
	}
	e[entity] = n
}

// Merge adds other counts. It does not keep the memory of their names.
func (e Entities) Merge(more Entities) {
	for entity, n := range more {
		sum, known := e[entity]
		if !known {
			entity = strings.Clone(entity)
		}
		e[entity] = Entity{sum.Rows + n.Rows, sum.Within1s + n.Within1s}
	}
}

// Sorted returns the names, those with the most rows first.
func (e Entities) Sorted() []string {
	return slices.SortedFunc(maps.Keys(e), func(a, b string) int { return cmp.Or(cmp.Compare(e[b].Rows, e[a].Rows), cmp.Compare(a, b)) })
}

// asJSON returns the counts as JSON, nil if there are none.
func (e Entities) asJSON() *string {
	if len(e) == 0 {
		return nil
	}
	list := map[string][2]uint64{}
	for i, name := range e.Sorted() {
		n := e[name]
		if i >= MaxEntities {
			name = ""
		}
		sum := list[name]
		list[name] = [2]uint64{sum[0] + n.Rows, sum[1] + n.Within1s}
	}
	return new(jsonText(list))
}

// parse adds the counts of a text.
func (e Entities) parse(text string) error {
	var list map[string][2]uint64
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	more := Entities{}
	for name, n := range list {
		more[name] = Entity{n[0], n[1]}
	}
	e.Merge(more)
	return nil
}

// A seenMinute has the observations of this process in a minute.
type seenMinute struct {
	looked           bool
	waiting          int
	oldest           time.Duration
	entities         Entities
	changes, written int
}

// Seen has what a process sees, by minute, until Write writes it: how many rows wait, and which
// entities are settled. It is lost if the process is killed before. Safe for concurrent use.
type Seen struct {
	table *Minutes

	mu      sync.Mutex
	minutes map[Minute]*seenMinute
}

// NewSeen returns a Seen that writes to a Table.
func NewSeen(t *Minutes) *Seen { return &Seen{table: t, minutes: map[Minute]*seenMinute{}} }

// change changes a minute.
func (s *Seen) change(at time.Time, do func(*seenMinute)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.minutes[MinuteAt(at)]
	if m == nil {
		m = &seenMinute{entities: Entities{}}
		s.minutes[MinuteAt(at)] = m
	}
	m.changes++
	do(m)
}

// Look records how many rows wait at a time of the database's clock, and how long the first one has
// waited.
func (s *Seen) Look(at time.Time, waiting int, oldest time.Duration) {
	s.change(at, func(m *seenMinute) {
		m.looked, m.waiting, m.oldest = true, max(m.waiting, waiting), max(m.oldest, oldest)
	})
}

// Settle counts the rows of a batch that was settled at a time of the database's clock.
func (s *Seen) Settle(at time.Time, e Entities) {
	if len(e) > 0 {
		s.change(at, func(m *seenMinute) { m.entities.Merge(e) })
	}
}

// Contract: an exclusive lock for one statement on one row by primary key, which only this process
// writes. Repeating it is harmless.
const seenSQL = `INSERT INTO cache_outbox_minutes (minute, worker, waiting, oldest_ms, entities) VALUES (?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE waiting = ?, oldest_ms = ?, entities = ?`

// Write writes the minutes that have changed, and keeps only the last two. The next Write repeats
// what fails. One goroutine calls it.
func (s *Seen) Write(ctx context.Context) error {
	s.mu.Lock()
	list := slices.Sorted(maps.Keys(s.minutes))
	s.mu.Unlock()
	for i, at := range list {
		s.mu.Lock()
		m := s.minutes[at]
		n, values := m.changes, m.values()
		s.mu.Unlock()
		if n > m.written {
			if err := s.table.addTotals(ctx, seenSQL, at, values...); err != nil {
				return err
			}
			m.written = n
		}
		if i < len(list)-2 {
			s.mu.Lock()
			delete(s.minutes, at)
			s.mu.Unlock()
		}
	}
	return nil
}

// values returns the values of the columns.
func (m *seenMinute) values() []any {
	if !m.looked {
		return []any{nil, nil, m.entities.asJSON()}
	}
	return []any{m.waiting, m.oldest.Milliseconds(), m.entities.asJSON()}
}

// A Share is how many of all were in time.
type Share struct{ In, All uint64 }

// Invalidations returns how many invalidations became visible in the window, except for those that
// still wait: settled rows and dead letters.
func (w *Window) Invalidations() uint64 { return w.Rows + w.Dead }

// Within returns the share of the invalidations whose keys were unlinked within 100 ms, 1 s or 10 s
// of becoming visible. Dead letters were not, and so are waiting rows that are older now.
func (w *Window) Within(limit time.Duration) Share {
	in, late := w.Within10s, w.waiting.Over10s
	switch limit {
	case 100 * time.Millisecond:
		in, late = w.Within100ms, w.waiting.Over100ms
	case time.Second:
		in, late = w.Within1s, w.waiting.Over1s
	}
	return Share{in, w.Invalidations() + late}
}

// Ratio returns the share as a number from 0 to 1. The share of nothing is not a number.
func (s Share) Ratio() float64 { return float64(s.In) / float64(s.All) }

// String returns the share in percent, rounded down to the first digit that is not a nine: 100% if
// none was missed, and never otherwise. It returns "none" for the share of nothing.
func (s Share) String() string {
	switch {
	case s.All == 0:
		return "none"
	case s.In == s.All:
		return "100%"
	}
	missed := float64(s.All-s.In) / float64(s.All) * 100
	digits := max(int(math.Ceil(-math.Log10(missed))), 1)
	scale := math.Pow10(digits)
	// Round the missing part up, except for an error in its last bits.
	missed = math.Ceil(missed*scale*(1-1e-12)) / scale
	text := strings.TrimRight(strconv.FormatFloat(100-missed, 'f', digits, 64), "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text + "%"
}
