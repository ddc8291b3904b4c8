package session

import (
	"errors"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
)

// AuditColumns are the columns of cache_outbox_audit that an operator's account may insert. The
// server sets the account and the time.
const AuditColumns = "claimed_by, action, arguments, row_count"

// deniedRight matches: SELECT command denied to user 'shop'@'%' for table 'cache_outbox', or in
// MariaDB `shop`.`cache_outbox`.
var deniedRight = regexp.MustCompile("([A-Z, ]+) command denied to user .* for table .*?([A-Za-z0-9_$]+)['`]$")

// MissingGrant returns the grant that is missing according to err, for example GRANT SELECT ON
// cache_outbox. It returns an empty string if err is not about a privilege or does not name it.
func MissingGrant(err error) string {
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != mysqlerr.NoRight {
		return ""
	}
	m := deniedRight.FindStringSubmatch(e.Message)
	if m == nil {
		return ""
	}
	right := strings.TrimSpace(m[1])
	columns := schema.InsertColumns(m[2])
	if m[2] == "cache_outbox_audit" {
		columns = AuditColumns
	}
	if right == "INSERT" && columns != "" {
		right += " (" + columns + ")"
	}
	return "GRANT " + right + " ON " + m[2]
}
