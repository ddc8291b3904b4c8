package capture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Column is a column of a table as the server describes it.
type Column struct {
	Name     string
	Type     string // without its length, in lower case, such as varchar
	Length   uint64 // in characters, for text
	Zerofill bool
	Virtual  bool // generated from others when it is read
	MariaDB  bool // the server is MariaDB
}

// The rows that a trigger sees.
const (
	oldRow   = "OLD"
	newRow   = "NEW"
	triedRow = "unstale_row" // in a SELECT
)

// same returns an expression that is true if the column has the same bytes in both rows, or is NULL
// in both. A collation treats 'été' and 'ETE' as equal, and JSON treats 1 and 1.0 as equal.
func (c Column) same() string {
	name, text := quote(c.Name), "%s.%s"
	compare := func(text string) string { return fmt.Sprintf(text+" <=> "+text, oldRow, name, newRow, name) }
	if c.isText() {
		return compare("CAST(%s.%s AS BINARY)")
	}
	switch c.Type {
	case "json":
		text = "CAST(CAST(%s.%s AS CHAR) AS BINARY)"
	case "timestamp": // whose text is the same twice where an hour of the session's time zone is
		text = "UNIX_TIMESTAMP(%s.%s)"
		if c.MariaDB { // the time zero is NULL in a trigger
			return compare(text) + alsoAsText(compare)
		}
	case "float", "double": // -0 equals 0
		return compare(text) + alsoAsText(compare)
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
		"geometrycollection", "vector":
		text = "HEX(%s.%s)"
	}
	return compare(text)
}

// alsoAsText returns a second condition. It finds values whose texts differ although the server
// treats the values as equal.
func alsoAsText(compare func(text string) string) string {
	return "\n      AND " + compare("CAST(%s.%s AS CHAR)")
}

// text returns an expression for the column's value in a row, in the form that applications write,
// or an error if there is none.
func (c Column) text(row string) (string, error) {
	name := row + "." + quote(c.Name)
	if c.isText() {
		return plainText(name), nil
	}
	switch c.Type {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal":
		if c.Zerofill { // clients show the zeros, which are not part of the number
			name += " + 0"
		}
		return "CAST(" + name + " AS CHAR CHARACTER SET utf8mb4)", nil
	case "year", "date", "datetime", "time", "uuid", "inet4", "inet6":
		return "CAST(" + name + " AS CHAR CHARACTER SET utf8mb4)", nil
	case "timestamp":
		return "", c.refuse("its text depends on the time zone of the session that writes", "UNIX_TIMESTAMP(%s)")
	case "float", "double":
		return "", c.refuse("its text is not exact", "CAST(%s AS DECIMAL(30,6))")
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return "", c.refuse("it has bytes, and no text", "HEX(%[1]s), or BIN_TO_UUID(%[1]s) in MySQL")
	case "bit":
		return "", c.refuse("it has bits, and no text", "BIN(%s)")
	case "json":
		return "", c.refuse("it has no text of its own", "JSON_UNQUOTE(JSON_EXTRACT(%s, '$.sku'))")
	default:
		return "", c.refuse("it has no text of its own", "HEX(%s)")
	}
}

// plainText returns an expression's value as text, which JSON_ARRAY converts to a string: MariaDB
// would nest the value of a column that is declared as JSON.
func plainText(expression string) string {
	return "CONCAT('', CONVERT(" + expression + " USING utf8mb4))"
}

// textTypes are the types of text.
var textTypes = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}

// isText reports whether the type is one of text, so "" is a value of the column.
func (c Column) isText() bool { return slices.Contains(textTypes, c.Type) }

// An Empty is a capture whose ID is "" in rows that have "" in a column.
type Empty struct {
	invalidation.Capture
	Of Column
}

// String says what becomes of such rows.
func (e Empty) String() string {
	if e.IDInPattern == "" {
		return fmt.Sprintf("where %s is '', keys are unlinked with nothing in the place of {id}", e.Of.Name)
	}
	return fmt.Sprintf("each write where %s is '' makes a dead letter, because {id} in the pattern %q would match too much; leave such rows out with the id NULLIF({row}.%s, ''), or forbid them with CHECK (%[3]s <> '')",
		e.Of.Name, e.IDInPattern, quote(e.Of.Name))
}

// fits returns an error if the column's values cannot be IDs: a longer one would fail the write.
func (c Column) fits() error {
	if c.Length > protocol.MaxID {
		return fmt.Errorf("the column %s may have %d characters, an id of the outbox at most %d, and a longer one would fail the write; give an expression, such as LEFT({row}.%s, %d)",
			c.Name, c.Length, protocol.MaxID, quote(c.Name), protocol.MaxID)
	}
	return nil
}

// refuse returns an error with the reason why a column cannot be used, and a usable expression of
// it, %s.
func (c Column) refuse(why, expression string) error {
	return fmt.Errorf("the column %s is of the type %s: %s; give an expression, such as %s", c.Name, c.Type, why, fmt.Sprintf(expression, "{row}."+quote(c.Name)))
}

// quote quotes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// literal returns a text literal. Only quotes and backslashes are special.
func literal(text string) string {
	return "'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(text) + "'"
}
