package capture

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
)

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
