package capture

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Grants are the privileges of an account. A nil Grants could not be read.
type Grants struct {
	// of the account, and in MariaDB also of its role and of PUBLIC; their privileges add up
	holders map[string][]grant
	literal bool // names of databases are not patterns
	nobody  bool // the account does not exist
	// lines that are about neither tables nor routines, for example roles
	unread []string
}

// Contract for all: no lock; the server's own tables of grants, and a setting. SHOW GRANTS adds the
// roles of roles.
const (
	literalSQL         = "SHOW VARIABLES LIKE 'partial_revokes'" // of MySQL since 8.0.16
	publicSQL          = "SHOW GRANTS FOR PUBLIC"                // of MariaDB since 10.11
	ownDefaultRolesSQL = "SELECT role_name, role_host FROM information_schema.applicable_roles WHERE is_default = 'YES'"
	defaultRolesSQL    = "SELECT default_role_user, default_role_host FROM mysql.default_roles WHERE user = ? AND host = ?"
)

// sessionGrants returns the privileges of this session, including its active roles. They are nil if
// they cannot be read.
func sessionGrants(ctx context.Context, db *sql.DB, mariaDB bool) (*Grants, error) {
	return readGrants(ctx, db, mariaDB, "SHOW GRANTS")
}

// definerGrants returns the privileges of an account as a definer, which differ from those in a
// session. In MySQL only its default roles count, although all others may be active after a login.
// In MariaDB no role counts, except PUBLIC. They are nil if they cannot be read.
func definerGrants(ctx context.Context, db *sql.DB, mariaDB bool, account, own Account) (*Grants, error) {
	query := "SHOW GRANTS FOR " + account.String()
	if mariaDB {
		return readGrants(ctx, db, mariaDB, query)
	}
	list, args := ownDefaultRolesSQL, []any(nil)
	if account != own {
		list, args = defaultRolesSQL, []any{account.User, account.Host}
	}
	roles, err := queryAll(ctx, db, "the default roles", func(role *Account) []any { return []any{&role.User, &role.Host} }, list, args...)
	if isDenied(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	using := " USING "
	for _, role := range roles {
		query, using = query+using+role.String(), ", "
	}
	return readGrants(ctx, db, mariaDB, query)
}

func readGrants(ctx context.Context, db *sql.DB, mariaDB bool, query string) (*Grants, error) {
	lines, err := listLines(ctx, db, query)
	switch {
	case isDenied(err):
		return nil, nil
	case mysqlerr.Number(err) == mysqlerr.NoSuchGrant:
		return &Grants{nobody: true}, nil
	case err != nil:
		return nil, err
	}
	g := &Grants{holders: map[string][]grant{}}
	if mariaDB {
		public, err := listLines(ctx, db, publicSQL)
		if err != nil && mysqlerr.Number(err) == 0 {
			return nil, err
		}
		lines = append(lines, public...) // older servers do not have it
	} else {
		settings, err := queryAll(ctx, db, "partial_revokes", func(value *string) []any { return []any{new(string), value} }, literalSQL)
		if err != nil {
			return nil, err
		}
		g.literal = slices.Contains(settings, "ON")
	}
	for _, line := range lines {
		if holder, one, ok := parseGrant(line); ok {
			g.holders[holder] = append(g.holders[holder], one)
		} else {
			g.unread = append(g.unread, line)
		}
	}
	return g, nil
}

func listLines(ctx context.Context, db *sql.DB, query string) ([]string, error) {
	return queryAll(ctx, db, "the rights", func(line *string) []any { return []any{line} }, query)
}

// isDenied reports whether the account may not read the grants.
func isDenied(err error) bool {
	return mysqlerr.Is(err, mysqlerr.NoRight, mysqlerr.DatabaseDenied)
}

// An Account is an account of the server, for example unstale_capture@localhost. Its text quotes
// both parts.
type Account struct{ User, Host string }

// ParseAccount parses user@host, with or without quotes. Without a host, the account has any host.
func ParseAccount(text string) (Account, error) {
	user, host := text, "%"
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		user, host = text[:at], text[at+1:]
	}
	a := Account{trimQuotes(user), trimQuotes(host)}
	if a.User == "" || a.Host == "" || strings.ContainsAny(text, "\x00\n") {
		return Account{}, fmt.Errorf("%q is not an account; write it as user@host", text)
	}
	return a, nil
}

func trimQuotes(text string) string {
	if n := len(text); n > 1 && text[0] == text[n-1] && strings.IndexByte("'`\"", text[0]) >= 0 {
		return text[1 : n-1]
	}
	return text
}

func (a Account) String() string { return literal(a.User) + "@" + literal(a.Host) }

// is reports whether definer is the account in the dictionary's format, without quotes.
func (a Account) is(definer string) bool {
	at := strings.LastIndexByte(definer, '@')
	// hosts are stored in lower case
	return at >= 0 && definer[:at] == a.User && strings.EqualFold(definer[at+1:], a.Host)
}

// currentAccount returns the account of the connection.
func currentAccount(ctx context.Context, db *sql.DB) (Account, error) {
	text, err := askServer[string](ctx, db, "the account", "SELECT CURRENT_USER()")
	return accountOf(text), err
}

// accountOf parses an account in the dictionary's format, without quotes.
func accountOf(text string) Account {
	at := strings.LastIndexByte(text, '@')
	return Account{text[:max(at, 0)], text[at+1:]}
}

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

// SessionGrants returns the privileges of the account of db in a session, including its active
// roles. They are nil if they cannot be read. See Grants.On.
func SessionGrants(ctx context.Context, db *sql.DB) (*Grants, error) {
	mariaDB, err := isMariaDB(ctx, db)
	if err != nil {
		return nil, err
	}
	return sessionGrants(ctx, db, mariaDB)
}

// A Held is the part of a SHOW GRANTS line about one object.
type Held struct {
	Holder string // the account, or a role that it has, as the line writes it
	// with the columns of a privilege, unless it applies to all; includes GRANT OPTION
	Rights         map[string][]string
	Kind           string // FUNCTION, PROCEDURE ...; "" for tables
	Database, Name string // "*" is any; a database may be a pattern of LIKE
}

// On returns the object, as GRANT and REVOKE name it.
func (h *Held) On() string {
	name := func(s string) string {
		if s == "*" {
			return s
		}
		return "`" + strings.ReplaceAll(s, "`", "``") + "`"
	}
	return strings.TrimPrefix(h.Kind+" ", " ") + name(h.Database) + "." + name(h.Name)
}

// Held lists the grants, and the lines about something else, such as roles, without credentials. It
// includes what a partial revoke removes.
func (g *Grants) Held() (all []Held, others []string) {
	for _, holder := range slices.Sorted(maps.Keys(g.holders)) {
		for _, one := range g.holders[holder] {
			if one.revoked {
				continue
			}
			rights := maps.Clone(one.rights)
			delete(rights, "USAGE") // is none
			if one.passedOn {
				rights["GRANT OPTION"] = nil
			}
			all = append(all, Held{holder, rights, one.kind, one.database, one.name})
		}
	}
	for _, line := range g.unread {
		line, _, _ = strings.Cut(line, " IDENTIFIED ")
		others = append(others, line)
	}
	return all, others
}
