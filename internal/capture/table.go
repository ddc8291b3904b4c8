package capture

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// A Table is a table as the server describes it.
type Table struct {
	Name    string
	Columns []Column
}

// Contract: no lock; the dictionary, one row for each column of one table.
const (
	columnsSQL = `SELECT column_name, data_type, column_type, COALESCE(character_maximum_length, 0), extra FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position`
	tableTypeSQL = `SELECT COALESCE(MAX(t.table_type), ''), COALESCE(MAX(t.table_name), ''), COALESCE(MAX(t.engine), ''), COALESCE(MAX(e.transactions), '')
FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
WHERE t.table_schema = DATABASE() AND t.table_name = ?`
)

// readTable returns the table with a name, in the connection's database.
func readTable(ctx context.Context, db *sql.DB, name string) (Table, error) {
	var t Table // whose name may be in another case on a server that knows none
	var kind, engine, transactions string
	if err := db.QueryRowContext(ctx, tableTypeSQL, name).Scan(&kind, &t.Name, &engine, &transactions); err != nil {
		return t, fmt.Errorf("look for the table %s: %w", name, err)
	}
	switch kind {
	case "BASE TABLE", "SYSTEM VERSIONED":
	case "":
		return t, fmt.Errorf("the database has no table %s, or the account may not see it: GRANT SELECT, TRIGGER on it", name)
	default:
		return t, fmt.Errorf("%s is a %s, which has no triggers; name the table that it reads", name, strings.ToLower(kind))
	}
	if transactions == "NO" {
		return t, fmt.Errorf("%s is of the engine %s, which has no transactions: a row of the outbox could not share the fate of the write; use InnoDB", name, engine)
	}
	var err error
	t.Columns, err = list(ctx, db, "the columns of "+name, func(scan func(...any) error) (c Column, err error) {
		var whole, extra string
		err = scan(&c.Name, &c.Type, &whole, &c.Length, &extra)
		c.Virtual = strings.Contains(strings.ToUpper(extra), "VIRTUAL")
		c.Type, c.Zerofill = strings.ToLower(c.Type), strings.Contains(strings.ToLower(whole), "zerofill")
		return c, err
	}, columnsSQL, name)
	return t, err
}

// A Fault is what a database does not allow of a map's capture.
type Fault struct {
	invalidation.Capture
	Err error
}

func (f Fault) Error() string {
	return fmt.Sprintf("line %d of the map: the capture of %s: %v", f.Line, f.Table, f.Err)
}

func (f Fault) Unwrap() error { return f.Err }

// byTable groups captures, in the order in which tables are named first.
func byTable(all []invalidation.Capture) (groups [][]invalidation.Capture) {
	at := map[string]int{}
	for _, c := range all {
		i, known := at[c.Table]
		if !known {
			i = len(groups)
			at[c.Table], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}
