package capture

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Grants are what an account may do. A nil Grants is one that could not be read.
type Grants struct {
	holders map[string][]grant // of the account, and in MariaDB of its role and of PUBLIC: what each may do is added up
	literal bool               // names of databases are no patterns
	nobody  bool               // there is no such account
	unread  []string           // lines that are about neither tables nor routines, such as those of roles
}

// Contract for all: no lock; the server's own tables of grants, and a setting. SHOW GRANTS adds the roles of roles.
const (
	literalSQL         = "SHOW VARIABLES LIKE 'partial_revokes'" // of MySQL since 8.0.16
	publicSQL          = "SHOW GRANTS FOR PUBLIC"                // of MariaDB since 10.11
	ownDefaultRolesSQL = "SELECT role_name, role_host FROM information_schema.applicable_roles WHERE is_default = 'YES'"
	defaultRolesSQL    = "SELECT default_role_user, default_role_host FROM mysql.default_roles WHERE user = ? AND host = ?"
)

// sessionGrants are what this session may do, with the roles that are active in it. They are nil where they cannot be read.
func sessionGrants(ctx context.Context, db *sql.DB, mariaDB bool) (*Grants, error) {
	return readGrants(ctx, db, mariaDB, "SHOW GRANTS")
}

// definerGrants are what an account may do as a definer, which is not what it may do in a session: in MySQL its default roles
// count, though all others may be active when it logs in; in MariaDB no role does, except PUBLIC. They are nil where they
// cannot be read.
func definerGrants(ctx context.Context, db *sql.DB, mariaDB bool, account, own Account) (*Grants, error) {
	query := "SHOW GRANTS FOR " + account.String()
	if mariaDB {
		return readGrants(ctx, db, mariaDB, query)
	}
	list, args := ownDefaultRolesSQL, []any(nil)
	if account != own {
		list, args = defaultRolesSQL, []any{account.User, account.Host}
	}
	roles, err := listRoles(ctx, db, list, args...)
	if isDenied(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(roles) > 0 {
		query += " USING " + strings.Join(roles, ", ")
	}
	return readGrants(ctx, db, mariaDB, query)
}

func listRoles(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	return list(ctx, db, "the default roles", func(scan func(...any) error) (string, error) {
		var role Account
		err := scan(&role.User, &role.Host)
		return role.String(), err
	}, query, args...)
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
		lines = append(lines, public...) // of which an older server knows nothing
	} else if g.literal, err = namesAreLiteral(ctx, db); err != nil {
		return nil, err
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
	return list(ctx, db, "the rights", func(scan func(...any) error) (line string, err error) {
		err = scan(&line)
		return line, err
	}, query)
}

func namesAreLiteral(ctx context.Context, db *sql.DB) (bool, error) {
	settings, err := list(ctx, db, "partial_revokes", func(scan func(...any) error) (value string, err error) {
		err = scan(new(string), &value)
		return value, err
	}, literalSQL)
	return slices.Contains(settings, "ON"), err
}

// isDenied reports whether the account may not read the grants.
func isDenied(err error) bool {
	n := mysqlerr.Number(err)
	return n == mysqlerr.NoRight || n == mysqlerr.DatabaseDenied
}
