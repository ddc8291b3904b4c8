package capture

import (
	"regexp"
	"slices"
	"strings"
)

// A grant is a line of SHOW GRANTS.
type grant struct {
	// a partial revoke of MySQL, from privileges on all databases
	revoked bool
	// in upper case, with the columns of a privilege; without columns it applies to all
	rights         map[string][]string
	kind           string // FUNCTION, PROCEDURE ...; "" for tables
	database, name string // "*" is any; a database may be a pattern of LIKE
	passedOn       bool   // WITH GRANT OPTION
}

// grantLine matches GRANT SELECT, INSERT (`a`) ON `shop`.* TO `user`@`host` ... Names have no
// quotes with sql_quote_show_create = 0.
var grantLine = regexp.MustCompile(`^(GRANT|REVOKE) (.+) ON (?:(TABLE|FUNCTION|PROCEDURE|PACKAGE|PACKAGE BODY) )?` +
	"(" + nameInGrant + `)\.(` + nameInGrant + ") (?:TO|FROM) ((?:" + nameInGrant + ")(?:@(?:" + nameInGrant + "))?)")

const nameInGrant = "`(?:[^`]|``)*`|'(?:[^']|'')*'|[^`'. @]+"

// parseGrant parses a line about tables or routines.
func parseGrant(line string) (holder string, g grant, ok bool) {
	m := grantLine.FindStringSubmatch(line)
	if m == nil {
		return "", grant{}, false
	}
	g = grant{revoked: m[1] == "REVOKE", rights: map[string][]string{}, database: unquote(m[4]), name: unquote(m[5]), passedOn: strings.HasSuffix(line, " WITH GRANT OPTION")}
	if m[3] != "TABLE" {
		g.kind = m[3]
	}
	for _, one := range oneRight.FindAllStringSubmatch(m[2], -1) {
		right, columns := strings.ToUpper(strings.TrimSpace(one[1])), columnsIn(one[2])
		// there can be a privilege on the table and on columns
		if limits, known := g.rights[right]; !known || len(limits) > 0 {
			g.rights[right] = columns
		}
	}
	return m[6], g, true
}

// oneRight matches a privilege with its columns.
var oneRight = regexp.MustCompile("([^,(]+)(?:\\(((?:[^`)]|`(?:[^`]|``)*`)*)\\))?,?")

func columnsIn(list string) (names []string) {
	for _, m := range columnInGrant.FindAllString(list, -1) {
		names = append(names, unquote(m))
	}
	return names
}

var columnInGrant = regexp.MustCompile("`(?:[^`]|``)*`|[^`, ]+")

func unquote(name string) string {
	if len(name) > 1 && name[0] == '`' {
		return strings.ReplaceAll(name[1:len(name)-1], "``", "`")
	}
	return name
}

// gives reports whether the grant has a privilege, if necessary for at least these columns.
func (g grant) gives(right string, columns []string) bool {
	if _, all := g.rights["ALL PRIVILEGES"]; all {
		return true
	}
	limits, has := g.rights[right]
	return has && (len(limits) == 0 || len(columns) > 0 && !slices.ContainsFunc(columns, func(c string) bool { return indexFold(limits, c) < 0 }))
}

// On reports whether the account has a privilege on a table, or on at least these columns of it.
func (g *Grants) On(right, database, table string, columns ...string) bool {
	return g.has("", right, database, table, columns)
}

// onTable reports whether a privilege is granted on all columns of a table by a grant on that
// table.
func (g *Grants) onTable(right string, o object) bool {
	return g.byTable(right, o, func(columns []string) bool { return len(columns) == 0 })
}

// onSome reports whether the account has a privilege for a table, or for some of its columns.
func (g *Grants) onSome(right string, o object) bool {
	return g.On(right, o.database, o.name) || g.byTable(right, o, func([]string) bool { return true })
}

// byTable reports whether a grant on the table itself grants a privilege with fitting columns.
func (g *Grants) byTable(right string, o object, fits func(columns []string) bool) bool {
	for _, all := range g.holders {
		for _, one := range all {
			if columns, has := one.rights[right]; has && one.kind == "" && one.database == o.database && one.name == o.name && fits(columns) {
				return true
			}
		}
	}
	return false
}

// Executes reports whether the account may execute a function.
func (g *Grants) Executes(database, function string) bool {
	return g.has("FUNCTION", "EXECUTE", database, function, nil)
}

func (g *Grants) has(kind, right, database, name string, columns []string) bool {
	for _, all := range g.holders {
		if everywhere(all, right, database) || g.inDatabase(all, right, database) || slices.ContainsFunc(all, func(one grant) bool {
			return one.kind == kind && one.database == database && (one.name == name || kind != "" && strings.EqualFold(one.name, name)) && one.gives(right, columns)
		}) {
			return true
		}
	}
	return false
}

// everywhere reports whether a privilege is granted on all databases, and not revoked from this
// one.
func everywhere(all []grant, right, database string) bool {
	return slices.ContainsFunc(all, func(one grant) bool { return one.database == "*" && one.gives(right, nil) }) &&
		!slices.ContainsFunc(all, func(one grant) bool { return one.revoked && one.database == database && one.gives(right, nil) })
}

// inDatabase reports whether a privilege is granted on the whole database. Of several patterns that
// match it, a server uses only the most specific one; the order of equal ones is undefined.
func (g *Grants) inDatabase(all []grant, right, database string) bool {
	most, granted := -1, false
	for _, one := range all {
		if one.revoked || one.database == "*" || one.name != "*" || !g.matches(one.database, database) {
			continue
		}
		switch s := g.specificity(one.database); {
		case s > most:
			most, granted = s, one.gives(right, nil)
		case s == most:
			granted = granted && one.gives(right, nil)
		}
	}
	return granted
}

func (g *Grants) matches(pattern, database string) bool {
	return pattern == database || !g.literal && like(pattern, database)
}

// specificity grows with the literal text of a pattern before its first wildcard.
func (g *Grants) specificity(pattern string) int {
	const none = 128 // as many as a name has, and more
	for i := 0; i < len(pattern) && !g.literal; i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '%', '_':
			return i
		}
	}
	return none
}

// like reports whether a text matches a pattern of LIKE, as in GRANT ... ON `shop\_%`.*.
func like(pattern, text string) bool {
	var expression strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '%':
			expression.WriteString(".*")
		case c == '_':
			expression.WriteString(".")
		case c == '\\' && i+1 < len(pattern):
			i++
			fallthrough
		default:
			expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	matched, err := regexp.MatchString("(?s)^"+expression.String()+"$", text)
	return err == nil && matched
}
