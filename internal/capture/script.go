package capture

import (
	"context"
	"slices"
	"strings"
)

// Statements returns the statements that create all wanted triggers in a database without any, in
// [SQLMode].
func (c *Capturer) Statements(ctx context.Context) ([]string, error) {
	wanted, definer, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, change := range compare(wanted.Triggers, nil, definer, nil) {
		all = append(all, change.Want.SQL(change.Create, definer))
	}
	return all, nil
}

// Script returns statements in the format of the mysql client.
func Script(statements []string) string {
	delimiter := "$$"
	for slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, delimiter) }) {
		delimiter += "$"
	}
	var b strings.Builder
	b.WriteString("-- Triggers keep the sql_mode that they are made in: what is too long must fail, and not be cut.\n")
	b.WriteString("SET @unstale_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = '" + SQLMode + "', SESSION lock_wait_timeout = 1;\n")
	b.WriteString("SET NAMES utf8mb4;\nDELIMITER " + delimiter + "\n")
	for _, s := range statements {
		b.WriteString("\n" + s + delimiter + "\n")
	}
	b.WriteString("\nDELIMITER ;\nSET SESSION sql_mode = @unstale_sql_mode;\n")
	return b.String()
}
