package capture

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/invalidation"
)

// A Walk inserts an outbox row for each row of a captured table, as if each were inserted now. It
// reads the table in pages by its primary key, without locks, and waits for workers.
type Walk struct {
	Progress func(context.Context, Walked) error // called before each page; its error ends Run

	db    *sql.DB
	table string
	key   []Column // the primary one
	pages []string // statements that insert a page, one for each capture
}

// Walked is how far a Walk is.
type Walked struct {
	Table  string `json:"table"`
	About  int64  `json:"about"`  // rows of the table, by the server's estimate
	Read   int64  `json:"read"`   // rows of the table
	Rows   int64  `json:"rows"`   // inserted into the outbox
	Faults int    `json:"faults"` // rows of the table that MySQL refuses, for example an ID that is too long
	Waits  bool   `json:"-"`      // for workers
}

const (
	walkPage    = 1000 // rows of the table in a page
	walkBacklog = 5000 // a Walk waits while the outbox has as many rows
	walkPause   = 50 * time.Millisecond
	walkRepeats = 20  // of a page that failed by an error that passes, each after a longer pause
	walkFaults  = 100 // a Walk ends when MySQL has refused as many rows
)

// Types of columns in a primary key that comparisons with a text order as ORDER BY does.
var walkable = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "char", "varchar", "binary", "varbinary",
	"date", "datetime", "timestamp", "time", "year", "uuid", "inet4", "inet6"}

// Contract for all: no lock. The dictionary; an estimate; at most LIMIT rows.
const (
	aboutSQL   = "SELECT COALESCE(MAX(table_rows), 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	countSQL   = "SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT 10000) AS counted" // an estimate of a small table can be 0
	backlogSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox LIMIT ?) AS counted"
)

// NewWalk returns a Walk of a table. The sessions of db must be READ COMMITTED, or INSERT ...
// SELECT locks the rows of the table. While a trigger is missing or differs from the map, writes
// would still be lost behind the walk, so it is refused.
func (c *Capturer) NewWalk(ctx context.Context, db *sql.DB, table string) (*Walk, error) {
	changes, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	group := slices.DeleteFunc(slices.Clone(c.Captures), func(one invalidation.Capture) bool { return !strings.EqualFold(one.Table, table) })
	if len(group) == 0 {
		return nil, fmt.Errorf("the map does not capture %s; its section capture names the tables", table)
	}
	for _, change := range changes {
		switch change.State {
		case Unknown:
			return nil, change.hiddenError()
		case Missing, Changed: // also of a parent, whose cascades reach the table
			return nil, fmt.Errorf("the trigger %s on %s is %s, so writes still leave no row; run 'unstale capture apply' first", change.Event(), change.Table(), change.State)
		}
	}
	mariaDB, err := isMariaDB(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	described, err := readTable(ctx, c.DB, mariaDB, table)
	if err != nil {
		return nil, err
	}
	w := &Walk{db: db, table: described.Name}
	unique, err := readUniqueKeys(ctx, c.DB)
	if err != nil {
		return nil, err
	}
	name, key := described.key(unique[w.table])
	if name != "PRIMARY" {
		return nil, fmt.Errorf("%s has no primary key to read it by; %s", w.table, coarse)
	}
	w.key = key
	for _, column := range w.key {
		if !slices.Contains(walkable, column.Type) {
			return nil, fmt.Errorf("%s cannot be read in the order of its primary key, since %s is of the type %s; %s", w.table, quote(column.Name), column.Type, coarse)
		}
	}
	for _, one := range group {
		writer, err := newWriter(one, described)
		if err != nil {
			return nil, Fault{one, err}
		}
		id := writer.id.of(child)
		params := writer.paramsObject(func(p param) []string { return []string{p.of(child)} })
		w.pages = append(w.pages, "INSERT INTO "+outboxRows.into()+"\nSELECT "+outboxRows.values(one.Entity, id, params)+
			"\nFROM "+quote(w.table)+" AS "+child+"\nWHERE "+id+" IS NOT NULL")
	}
	return w, nil
}

const coarse = "invalidate its keys by a pattern instead: 'unstale invalidate --pattern'"

// Run reads the table from its beginning. After an error, and when ctx ends, the result has what
// was done; running it again is harmless. Rows that are inserted meanwhile need not be read:
// their triggers have inserted theirs. A page that fails is repeated in smaller pieces, for ten
// seconds if the error passes. At the end, the error names the first row that MySQL refuses.
func (w *Walk) Run(ctx context.Context) (done Walked, err error) {
	done, err = w.Estimate(ctx)
	if err != nil {
		return done, err
	}
	var after []any
	var fault error
	for size, failed := walkPage, 0; ; {
		if err := w.Progress(ctx, done); err != nil {
			return done, err
		}
		if done.Waits, err = w.isAhead(ctx); err != nil {
			return done, err
		}
		if done.Waits {
			if err := sleep.For(ctx, walkPause); err != nil {
				return done, err
			}
			continue
		}
		last, n, rows, err := w.page(ctx, after, size)
		switch {
		case err == nil && n == 0:
			return done, fault
		case err == nil:
			done.Read, done.Rows, after = done.Read+n, done.Rows+rows, last
			size, failed = min(2*size, walkPage), 0
		case ctx.Err() != nil:
			return done, ctx.Err()
		case size > 1:
			size = max(size/8, 1)
		case failed < walkRepeats && (mysqlerr.IsPassing(err) || mysqlerr.Number(err) == 0):
			failed++
			if err := sleep.For(ctx, time.Duration(failed)*walkPause); err != nil {
				return done, err
			}
		case n == 0 || mysqlerr.Number(err) == 0:
			return done, err
		default:
			done.Read, done.Faults, after, failed = done.Read+1, done.Faults+1, last, 0
			if fault == nil {
				fault = fmt.Errorf("no row for %s of %s: %w", w.name(last), w.table, err)
			}
			if done.Faults == walkFaults {
				return done, fault
			}
		}
	}
}

// name returns a text for people that names the row with a key.
func (w *Walk) name(key []any) string {
	var pairs []string
	for i, value := range key {
		if text, ok := value.([]byte); ok {
			value = string(text)
		}
		pairs = append(pairs, fmt.Sprintf("%s = %q", quote(w.key[i].Name), fmt.Sprint(value)))
	}
	return strings.Join(pairs, ", ")
}

// Estimate returns what Run will read, about.
func (w *Walk) Estimate(ctx context.Context) (Walked, error) {
	done := Walked{Table: w.table}
	if err := w.db.QueryRowContext(ctx, aboutSQL, w.table).Scan(&done.About); err != nil {
		return done, fmt.Errorf("estimate the rows of %s: %w", w.table, err)
	}
	var n int64
	if err := w.db.QueryRowContext(ctx, fmt.Sprintf(countSQL, quote(w.table))).Scan(&n); err != nil {
		return done, fmt.Errorf("count the rows of %s: %w", w.table, err)
	}
	if done.About = max(done.About, n); n < 10_000 {
		done.About = n
	}
	return done, nil
}

// isAhead reports whether workers have enough rows for now.
func (w *Walk) isAhead(ctx context.Context) (bool, error) {
	var n int
	if err := w.db.QueryRowContext(ctx, backlogSQL, walkBacklog).Scan(&n); err != nil {
		return false, fmt.Errorf("count the outbox: %w", err)
	}
	return n >= walkBacklog, nil
}

// page inserts rows for the page after a key. It returns the key of its last row, how many rows of
// the table it has, and how many it inserted. After an error of the inserts, the first two are
// valid.
//
// Contract: no lock on the table (READ COMMITTED), a range of its primary key; inserts as many rows
// into the outbox, in one transaction for each capture.
func (w *Walk) page(ctx context.Context, after []any, size int) (last []any, n, rows int64, err error) {
	where, args := w.beyond(after, ">", ">")
	var texts, columns []string
	for _, part := range w.key {
		column := child + "." + quote(part.Name)
		columns = append(columns, column)
		if strings.HasPrefix(part.Type, "date") || strings.HasPrefix(part.Type, "time") {
			column = "CAST(" + column + " AS CHAR)" // as it is, even the month 0
		}
		texts = append(texts, column)
	}
	keys, err := queryAll(ctx, w.db, "the rows of "+w.table, func(key *[]any) []any {
		*key = make([]any, len(w.key))
		into := make([]any, len(w.key))
		for i := range into {
			into[i] = &(*key)[i]
		}
		return into
	}, "SELECT "+strings.Join(texts, ", ")+" FROM "+quote(w.table)+" AS "+child+" WHERE TRUE"+where+
		" ORDER BY "+strings.Join(columns, ", ")+fmt.Sprint(" LIMIT ", size), args...)
	if err != nil || len(keys) == 0 {
		return nil, 0, 0, err
	}
	last = keys[len(keys)-1]
	for i := range last {
		last[i] = argument(last[i], w.key[i].Type)
	}
	if reflect.DeepEqual(last, after) {
		return nil, 0, 0, fmt.Errorf("%s cannot be read in the order of its primary key, since %s is not after itself; %s", w.table, w.name(last), coarse)
	}
	until, more := w.beyond(last, "<", "<=")
	for _, page := range w.pages {
		result, err := w.db.ExecContext(ctx, page+where+until, slices.Concat(args, more)...)
		if err != nil {
			return last, int64(len(keys)), 0, fmt.Errorf("insert rows for %s: %w", w.table, err)
		}
		inserted, _ := result.RowsAffected() // the driver has it
		rows += inserted
	}
	return last, int64(len(keys)), rows, nil
}

// argument returns a value that the driver read in the form that the server compares as the column
// does. Bytes are only for a column of bytes: others take them for text in their own character set.
func argument(value any, kind string) any {
	text, ok := value.([]byte)
	if !ok || strings.HasSuffix(kind, "binary") {
		return value
	}
	if strings.HasSuffix(kind, "int") {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			return n
		}
	}
	return string(text)
}

// beyond returns the condition that a row is on one side of a key, and its arguments. of compares
// all columns but the last. The first comparison is the range that the index can use.
func (w *Walk) beyond(key []any, of, last string) (condition string, args []any) {
	if key == nil {
		return "", nil
	}
	var either, same []string
	for i, part := range w.key {
		column := child + "." + quote(part.Name)
		compare := of
		if i == len(w.key)-1 {
			compare = last
		}
		either = append(either, "("+strings.Join(append(slices.Clone(same), column+" "+compare+" ?"), " AND ")+")")
		args = append(args, key[:i+1]...)
		same = append(same, column+" = ?")
	}
	return "\n  AND " + child + "." + quote(w.key[0].Name) + " " + of + "= ? AND (" + strings.Join(either, " OR ") + ")", append(key[:1:1], args...)
}
