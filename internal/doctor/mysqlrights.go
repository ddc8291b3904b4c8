package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/output"
)

// A TableRights lists a worker's statements on one table.
type TableRights struct {
	Table  string
	Column string // a column of the table, for an UPDATE
	Rights []string
}

// WorkerRights are the privileges of a worker, in addition to SELECT on the tables of the map's
// lookups. docs/accounts.md grants them.
var WorkerRights = []TableRights{
	{"cache_outbox", "id", []string{"SELECT", "DELETE"}},
	{"cache_outbox_delayed", "id", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"cache_outbox_dead", "id", []string{"SELECT", "INSERT"}},
	{"cache_outbox_journal", "id", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"cache_outbox_summaries", "", []string{"SELECT", "INSERT", "DELETE"}},
	{"cache_outbox_sweeps", "id", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"cache_outbox_sweeper", "name", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"cache_outbox_workers", "", []string{"SELECT", "INSERT", "DELETE"}},
	{"cache_outbox_minutes", "minute", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{"cache_outbox_stale", "id", []string{"SELECT", "INSERT", "DELETE"}},
	{"cache_outbox_shadow", "", []string{"SELECT", "INSERT", "DELETE"}},
	{"cache_outbox_locks", "", []string{"SELECT", "DELETE"}},
	{"cache_outbox_control", "name", []string{"SELECT"}},
	{"cache_outbox_source", "one", []string{"SELECT"}},
	{"cache_outbox_version", "id", []string{"SELECT"}},
}

// Contract for all: no row is read or changed, so no row is locked and no log is written; a
// metadata lock on the table until the rollback that follows. Repeating them does nothing.
var rightSQL = map[string]string{
	"SELECT": "SELECT * FROM %[1]s WHERE 1 = 0",
	"INSERT": "INSERT INTO %[1]s SELECT * FROM %[1]s WHERE 1 = 0",
	"UPDATE": "UPDATE %[1]s SET %[2]s = %[2]s WHERE 1 = 0",
	"DELETE": "DELETE FROM %[1]s WHERE 1 = 0",
}

// mysqlRights runs the statements of a worker on no row, and compares the account's grants with
// what a worker needs.
func mysqlRights(ctx context.Context, e *Inputs) (all []Finding, err error) {
	db := e.MySQL.DB()
	account, database, err := whoAndWhere(ctx, db)
	if err != nil {
		return nil, err
	}
	tried := 0
	var grants, evidence []string
	for _, t := range WorkerRights {
		lacks, said, err := t.try(ctx, db)
		if err != nil {
			all = append(all, unknown("the rights on "+t.Table, err, ""))
		}
		tried += len(t.Rights)
		if len(lacks) > 0 {
			evidence = append(evidence, said...)
			grants = append(grants, fmt.Sprintf("GRANT %s ON `%s`.%s TO %s;", strings.Join(lacks, ", "), strings.ReplaceAll(database, "`", "``"), t.Table, account))
		}
	}
	if len(grants) > 0 {
		all = append(all, found(Critical, "the worker's MySQL account lacks rights", strings.Join(evidence, "\n"), strings.Join(grants, "\n")))
	}
	well := output.Things(tried, "right") + " are there, each was tried"
	if e.mayExceed {
		return orOK(all, "%s", well), nil
	}
	excess, err := e.mysqlExcess(ctx, account, database)
	if err == nil && len(excess) == 0 {
		well += ", and the account may do no more than a worker does, by SHOW GRANTS"
	}
	return append(orOK(all, "%s", well), excess...), err
}

// whoAndWhere returns the connection's account, quoted, and its database.
func whoAndWhere(ctx context.Context, db *sql.DB) (account, database string, err error) {
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER(), DATABASE()").Scan(&account, &database); err != nil {
		return "", "", fmt.Errorf("ask for the account: %w", err)
	}
	at := strings.LastIndexByte(account, '@')
	return quoteAccount(account[:max(at, 0)], account[at+1:]), database, nil
}

func quoteAccount(user, host string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return quote(user) + "@" + quote(host)
}

// try returns the missing privileges, and the errors of the server.
func (t *TableRights) try(ctx context.Context, db *sql.DB) (lacks, said []string, err error) {
	for _, right := range t.Rights {
		err := tryStatement(ctx, db, fmt.Sprintf(rightSQL[right], t.Table, t.Column))
		switch mysqlerr.Number(err) {
		case mysqlerr.NoRight, mysqlerr.NoColumnRight, mysqlerr.DatabaseDenied:
			named := slices.DeleteFunc(deniedRights(err, right), func(one string) bool { return !slices.Contains(t.Rights, one) })
			if len(named) == 0 { // an unnamed error: the tried privilege is missing
				named = []string{right}
			}
			for _, one := range named {
				if !slices.Contains(lacks, one) {
					lacks, said = append(lacks, one), append(said, err.Error())
				}
			}
			continue
		}
		if err != nil {
			return lacks, said, err
		}
	}
	return lacks, said, nil
}

func tryStatement(ctx context.Context, db *sql.DB, statement string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, statement)
	return errors.Join(err, tx.Rollback())
}

// deniedVerb matches INSERT command denied to user ...
var deniedVerb = regexp.MustCompile(`([A-Z, ]+) command denied to user`)

// deniedRights returns the privileges that an error names, or the privilege that was tried: an
// INSERT ... SELECT may lack the other one.
func deniedRights(err error, tried string) []string {
	if m := deniedVerb.FindStringSubmatch(err.Error()); m != nil {
		return strings.Split(strings.ReplaceAll(strings.TrimSpace(m[1]), " ", ""), ",")
	}
	return []string{tried}
}

// Contract: no table.
const currentRoleSQL = "SELECT COALESCE(CURRENT_ROLE(), 'NONE')"

// mysqlExcess compares the grants of the account and of its active roles with the needs of a
// worker. The result is a hint: only a trial proves a privilege, and these are not tried.
func (e *Inputs) mysqlExcess(ctx context.Context, account, database string) (all []Finding, err error) {
	db := e.MySQL.DB()
	g, err := capture.SessionGrants(ctx, db)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, errors.New("the account may not read its own grants")
	}
	active, err := texts(ctx, db, currentRoleSQL)
	if err != nil {
		return nil, err
	}
	held, others := g.Held()
	reads, err := e.readsOfLookups(ctx, db)
	if err != nil {
		return nil, err
	}
	var excess []string
	for i := range held {
		if rights := reads.needless(&held[i], database); len(rights) > 0 {
			text := strings.Join(rights, ", ")
			excess = append(excess, fmt.Sprintf("%s has %s on %s", held[i].Holder, text, held[i].On()))
		}
	}
	unclear := reads.unjudged(held)
	for _, line := range others {
		switch {
		case strings.HasPrefix(line, "GRANT PROXY "):
			excess = append(excess, line)
		case !givesActive(line, active):
			unclear = append(unclear, line)
		}
	}
	if len(excess) > 0 {
		all = append(all, found(Warning, "the worker's MySQL account may do more than a worker does", strings.Join(excess, "\n"),
			strings.Join(append(reads.create(database, account), "then name the new account in --mysql-dsn"), "\n")))
	}
	if len(unclear) > 0 {
		all = append(all, unknown("what else the worker's MySQL account may do", errors.New(strings.Join(unclear, "\n")),
			"use an account without roles, which has the grants of docs/accounts.md"))
	}
	return all, nil
}

// needless returns the privileges of a grant that no worker needs, sorted.
func (r *lookupReads) needless(h *capture.Held, database string) (rights []string) {
	for _, right := range slices.Sorted(maps.Keys(h.Rights)) {
		if r.needs(h, right, database) {
			continue
		}
		if columns := h.Rights[right]; len(columns) > 0 {
			right += " (`" + strings.Join(columns, "`, `") + "`)"
		}
		rights = append(rights, right)
	}
	return rights
}

func (r *lookupReads) needs(h *capture.Held, right, database string) bool {
	if h.Database == "*" || h.Name == "*" {
		return false
	}
	for _, t := range WorkerRights {
		if h.Kind == "" && h.Database == database && h.Name == t.Table && slices.Contains(t.Rights, right) {
			return true
		}
	}
	return isLookups(h, right) && (r.names(h.Name) || r.unclear(h) != "")
}

// roleGrant matches GRANT `a`@`%`, `b`@`%` TO ...; MariaDB writes no host.
var roleGrant = regexp.MustCompile("^GRANT ((?:`(?:[^`]|``)*`(?:@`(?:[^`]|``)*`)?,? ?)+) TO |^GRANT (\\S+) TO ")

// givesActive reports whether a line is about active roles, whose privileges are listed with those
// of the account. MariaDB also lists the default role, which is one of them.
func givesActive(line string, active []string) bool {
	if strings.HasPrefix(line, "SET DEFAULT ROLE ") {
		return true
	}
	m := roleGrant.FindStringSubmatch(line)
	if m == nil || strings.HasSuffix(line, " WITH ADMIN OPTION") {
		return false
	}
	plain := strings.NewReplacer("`", "", " ", "")
	on := strings.Split(plain.Replace(strings.Join(active, ",")), ",")
	for role := range strings.SplitSeq(plain.Replace(m[1]+m[2]), ",") {
		if !slices.Contains(on, role) {
			return false
		}
	}
	return true
}
