package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
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

// mysqlRights runs the statements of a worker on no row.
func mysqlRights(ctx context.Context, e *Exam) (all []Finding, err error) {
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
			all = append(all, unseen("the rights on "+t.Table, err, ""))
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
	if len(all) == 0 {
		all = append(all, well("%s are there, each was tried", count(tried, "right")))
	}
	return all, nil
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
