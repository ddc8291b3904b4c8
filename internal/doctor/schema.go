package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/schema"
)

// Contract: the dictionary, without a row lock; it shows only tables that the account has a
// privilege on.
const outboxesSQL = `SELECT table_schema FROM information_schema.tables
WHERE table_name = '` + schema.Table + `' AND table_schema <> DATABASE() ORDER BY table_schema LIMIT 6`

// schemaFits also looks for an outbox in other databases, since a wrong database name is a common
// mistake.
func schemaFits(ctx context.Context, e *Exam) ([]Finding, error) {
	db := e.MySQL.DB()
	err := schema.Check(ctx, db)
	switch {
	case err == nil:
		return layout(ctx, e)
	case !errors.Is(err, schema.Err):
		return nil, err
	}
	var here string
	if err := db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&here); err != nil {
		return nil, fmt.Errorf("ask for the database: %w", err)
	}
	others, readErr := texts(ctx, db, outboxesSQL)
	if most := 5; len(others) > most {
		others = append(others[:most], "and in more")
	}
	if have, versionErr := schema.Read(ctx, db); versionErr == nil && have == 0 && readErr == nil && len(others) > 0 {
		return []Finding{found(Critical, "the database "+here+" has no outbox, and another one has: is the DSN's database wrong?",
			err.Error()+"; there is one in "+strings.Join(others, ", "), "name the right database in --mysql-dsn")}, nil
	}
	all := []Finding{found(Critical, "the tables of the outbox in "+here+" do not fit this binary", err.Error(), "unstale migrate up, or deploy the other binary")}
	if readErr != nil {
		all = append(all, unseen("whether another database has an outbox", readErr, ""))
	}
	return all, nil
}

// layout compares the tables with the result of the migrations. Only an account with TRIGGER sees
// triggers, and that is the audit's.
func layout(ctx context.Context, e *Exam) (all []Finding, _ error) {
	list, err := schema.Deviations(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	if e.reached[auditMySQL] == nil && e.elsewhere[auditMySQL] == nil {
		more, err := schema.Deviations(ctx, e.AuditMySQL.DB())
		if err != nil {
			return nil, err
		}
		for _, d := range more {
			if !slices.Contains(list, d) {
				list = append(list, d)
			}
		}
	}
	have, err := schema.Read(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	switch {
	case len(list) == 0 && have > schema.Version:
		return []Finding{well("the outbox has version %d, which is newer than this binary's %d and declares that the binary may run on it", have, schema.Version)}, nil
	case len(list) == 0:
		return []Finding{well("the outbox has version %d, and its tables are as the migrations left them", have)}, nil
	}
	for _, d := range list {
		all = append(all, found(Warning, d.What, fmt.Sprintf("version %d has it otherwise", schema.Version), d.Cure))
	}
	return all, nil
}
