package capture

import (
	"context"
	"database/sql"
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
		lines = append(lines, public...) // older servers do not have it
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
