package capture

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/invalidation"
)

// A Walk inserts an outbox row for each row of a captured table, as if each were inserted now. It
// reads the table in pages by its primary key, without locks, and waits for workers.
type Walk struct {
	Progress func(context.Context, Walked) error // called before each page; its error ends Run

	db    *sql.DB
	table string
	key   []string
	pages []string // statements that insert a page, one for each capture
}

// Walked is how far a Walk is.
type Walked struct {
	Table string `json:"table"`
	About int64  `json:"about"` // rows of the table, by the server's estimate
	Read  int64  `json:"read"`  // rows of the table
	Rows  int64  `json:"rows"`  // inserted into the outbox
	Waits bool   `json:"-"`     // for workers
}

const (
	walkPage    = 1000 // rows of the table in a page
	walkBacklog = 5000 // a Walk waits while the outbox has as many rows
	walkPause   = 50 * time.Millisecond
)

// Types of columns in a primary key that comparisons with a text order as ORDER BY does.
var walkable = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "char", "varchar", "binary", "varbinary",
	"date", "datetime", "timestamp", "time", "year", "uuid", "inet4", "inet6"}

// Contract for all: no lock. The dictionary; an estimate; at most LIMIT rows of the outbox.
const (
	primaryKeySQL = `SELECT column_name FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND table_name = ? AND constraint_name = 'PRIMARY' ORDER BY ordinal_position`
	aboutSQL   = "SELECT COALESCE(MAX(table_rows), 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	backlogSQL = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox LIMIT ?) AS counted"
)

// NewWalk returns a Walk of a table. The sessions of db must be READ COMMITTED, or INSERT ...
// SELECT locks the rows of the table. A table that lacks a trigger is refused: it would still lose
// writes behind the walk.
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
		switch lacks := change.Want != nil && change.Have == nil && strings.EqualFold(change.Table(), table); {
		case lacks && change.State == Unknown:
			return nil, change.hiddenError()
		case lacks:
			return nil, fmt.Errorf("%s lacks its trigger %s, so its writes still leave no row; run 'unstale capture apply' first", table, change.Event())
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
	if w.key, err = queryAll(ctx, c.DB, "the primary key of "+w.table, func(name *string) []any { return []any{name} }, primaryKeySQL, w.table); err != nil {
		return nil, err
	}
	if len(w.key) == 0 {
		return nil, fmt.Errorf("%s has no primary key to read it by; %s", w.table, coarse)
	}
	for _, name := range w.key {
		if column, err := described.column(name); err != nil || !slices.Contains(walkable, column.Type) {
			return nil, fmt.Errorf("%s cannot be read in the order of its primary key, since %s is of the type %s; %s", w.table, quote(name), column.Type, coarse)
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
// was done; running it again is harmless. Rows that are inserted meanwhile need not be read, because
// their triggers have inserted theirs.
//
// Contract of a page: no lock on the table (READ COMMITTED), a range of its primary key; inserts as
// many rows into the outbox, in one transaction for each capture.
func (w *Walk) Run(ctx context.Context) (done Walked, err error) {
	done, err = w.Estimate(ctx)
	if err != nil {
		return done, err
	}
	var after []any
	for {
		if err := w.Progress(ctx, done); err != nil {
			return done, err
		}
		if done.Waits, err = w.isAhead(ctx); err != nil {
			return done, err
		}
		if done.Waits {
			select {
			case <-ctx.Done():
				return done, ctx.Err()
			case <-time.After(walkPause):
			}
			continue
		}
		last, n, err := w.page(ctx, after)
		if err != nil || n == 0 {
			return done, err
		}
		where, args := w.beyond(after, ">", ">")
		until, more := w.beyond(last, "<", "<=")
		for _, page := range w.pages {
			result, err := w.db.ExecContext(ctx, page+where+until, slices.Concat(args, more)...)
			if err != nil {
				return done, fmt.Errorf("insert rows for %s: %w", w.table, err)
			}
			inserted, _ := result.RowsAffected() // the driver has it
			done.Rows += inserted
		}
		done.Read, after = done.Read+n, last
	}
}

// Estimate returns what Run will read, about.
func (w *Walk) Estimate(ctx context.Context) (Walked, error) {
	done := Walked{Table: w.table}
	if err := w.db.QueryRowContext(ctx, aboutSQL, w.table).Scan(&done.About); err != nil {
		return done, fmt.Errorf("estimate the rows of %s: %w", w.table, err)
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

// page returns the key of the last row of the page after a key, and how many rows it has.
func (w *Walk) page(ctx context.Context, after []any) (last []any, n int64, err error) {
	where, args := w.beyond(after, ">", ">")
	var columns []string
	for _, name := range w.key {
		columns = append(columns, child+"."+quote(name))
	}
	list := strings.Join(columns, ", ")
	keys, err := queryAll(ctx, w.db, "the rows of "+w.table, func(key *[]any) []any {
		*key = make([]any, len(w.key))
		into := make([]any, len(w.key))
		for i := range into {
			into[i] = &(*key)[i]
		}
		return into
	}, "SELECT "+list+" FROM "+quote(w.table)+" AS "+child+" WHERE TRUE"+where+" ORDER BY "+list+fmt.Sprint(" LIMIT ", walkPage), args...)
	if err != nil || len(keys) == 0 {
		return nil, 0, err
	}
	return keys[len(keys)-1], int64(len(keys)), nil
}

// beyond returns the condition that a row is on one side of a key, and its arguments. of compares
// all columns but the last. The first comparison is the range that the index can use.
func (w *Walk) beyond(key []any, of, last string) (condition string, args []any) {
	if key == nil {
		return "", nil
	}
	var either, same []string
	for i, name := range w.key {
		column := child + "." + quote(name)
		compare := of
		if i == len(w.key)-1 {
			compare = last
		}
		either = append(either, "("+strings.Join(append(slices.Clone(same), column+" "+compare+" ?"), " AND ")+")")
		args = append(args, key[:i+1]...)
		same = append(same, column+" = ?")
	}
	return "\n  AND " + child + "." + quote(w.key[0]) + " " + of + "= ? AND (" + strings.Join(either, " OR ") + ")", append(key[:1:1], args...)
}
