package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
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
func readTable(ctx context.Context, db *sql.DB, mariaDB bool, name string) (Table, error) {
	var t Table // the name may differ in case on a server that ignores it
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
		c.MariaDB, c.Virtual = mariaDB, strings.Contains(strings.ToUpper(extra), "VIRTUAL")
		c.Type, c.Zerofill = strings.ToLower(c.Type), strings.Contains(strings.ToLower(whole), "zerofill")
		return c, err
	}, columnsSQL, name)
	if err == nil {
		err = t.checkVisible(ctx, db)
	}
	return t, err
}

// Contract: no lock on rows. Any privilege on the whole table shows all of it.
const createdSQL = "SHOW CREATE TABLE "

// createdColumn matches a column in the output of SHOW CREATE TABLE. Settings choose the quotes.
var createdColumn = regexp.MustCompile("(?m)^  (?:`((?:[^`]|``)*)`|\"((?:[^\"]|\"\")*)\") ")

// checkVisible returns an error if the account does not see all columns. The information_schema
// hides columns without a privilege, and with them the foreign keys. A trigger would ignore both.
func (t *Table) checkVisible(ctx context.Context, db *sql.DB) error {
	texts, err := list(ctx, db, "the definition of "+t.Name, func(scan func(...any) error) (text string, err error) {
		err = scan(new(any), &text)
		return text, err
	}, createdSQL+quote(t.Name))
	if n := mysqlerr.Number(err); n == mysqlerr.NoRight {
		return fmt.Errorf("the account may not see all of the table: %w; GRANT SELECT ON %s to it", err, quote(t.Name))
	}
	if err != nil {
		return err
	}
	var names, hidden []string
	for _, m := range createdColumn.FindAllStringSubmatch(texts[0], -1) {
		name := strings.ReplaceAll(m[1], "``", "`") + strings.ReplaceAll(m[2], `""`, `"`)
		names = append(names, name)
		if _, err := t.column(name); err != nil {
			hidden = append(hidden, quote(name))
		}
	}
	switch {
	case len(hidden) > 0:
		return fmt.Errorf("the account does not see the columns %s, so their changes would leave no row; GRANT SELECT ON %s to it", strings.Join(hidden, ", "), quote(t.Name))
	case len(names) == 0:
		return errors.New("SHOW CREATE TABLE shows its columns without quotes; SET GLOBAL sql_quote_show_create = 1")
	}
	return nil
}

// A Fault is a part of a map's capture that the database does not allow.
type Fault struct {
	invalidation.Capture
	Err error
}

func (f Fault) Error() string {
	return fmt.Sprintf("line %d of the map: the capture of %s: %v", f.Line, f.Table, f.Err)
}

func (f Fault) Unwrap() error { return f.Err }

// Faults returns the faults that an error joins. It returns none for an error of another kind.
func Faults(err error) (all []Fault) {
	for _, one := range joined(err) {
		var fault Fault
		if errors.As(one, &fault) {
			all = append(all, fault)
		}
	}
	return all
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// byTable groups captures by table, in the order of their first occurrence.
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
