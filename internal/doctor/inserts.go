package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
)

// Contract: no lock; the server's table of privileges on tables.
const insertersSQL = `SELECT User AS user, Host AS host, Db AS db, Table_name AS tbl FROM mysql.tables_priv
WHERE Db = DATABASE() AND Table_name LIKE 'cache\_outbox%' AND FIND_IN_SET('Insert', Table_priv) ORDER BY user, host, tbl`

// inserts finds accounts that may choose the ID of a row. Only the worker's account inserts whole
// rows.
func inserts(ctx context.Context, e *Exam) (all []Finding, err error) {
	worker := ""
	if e.reached[aMySQL] == nil {
		if worker, _, err = whoAndWhere(ctx, e.MySQL.DB()); err != nil {
			return nil, err
		}
	}
	held, err := queryRows(ctx, e.AuditMySQL.DB(), insertersSQL)
	if mysqlerr.Number(err) == mysqlerr.NoRight {
		return []Finding{unseen("which accounts may choose the ID of a row", err, "GRANT SELECT ON mysql.tables_priv to the account of --audit-mysql-dsn")}, nil
	}
	if err != nil {
		return nil, err
	}
	var evidence, cure []string
	for _, h := range held {
		account := quoteAccount(h["user"], h["host"])
		columns := schema.InsertColumns(h["tbl"])
		if columns == "" || account == worker {
			continue
		}
		evidence = append(evidence, account+" has INSERT on all columns of "+h["tbl"])
		cure = append(cure, fmt.Sprintf("GRANT INSERT (%s) ON `%s`.%s TO %s;", columns, strings.ReplaceAll(h["db"], "`", "``"), h["tbl"], quoteAccount(h["user"]+"_2", h["host"])))
	}
	if len(evidence) == 0 {
		return []Finding{well("no account but a worker's has INSERT on a whole table of the outbox; grants on the database are not looked at")}, nil
	}
	return []Finding{found(Warning, "accounts may choose the ID of a row, and one high ID makes every later insert fail (1467)", strings.Join(evidence, "\n"),
		strings.Join(append([]string{"create a new account with the application's other privileges: docs/accounts.md#insert-privileges-by-column"}, cure...), "\n"))}, nil
}
