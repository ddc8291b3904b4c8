package store

import (
	"fmt"

	"github.com/unstale/unstale/internal/session"
)

// A table is a table that rows are claimed from, with its statements. Each statement, except the
// claim and the removal of spans, takes a JSON list of its rows, which JSON_TABLE joins to the
// table in a fixed order by the primary key. Nothing weaker limits the server to those rows: a
// queue's statistics swing between empty and full, and with
//
//	DELETE ... WHERE id IN (...)                    -- and also with
//	DELETE ... WHERE id IN (...) ORDER BY id LIMIT n
//
// MySQL 9.7 may scan the table from its start and wait for the first uncommitted insert. MariaDB
// 10.11 may do so with the first form.
type table struct {
	name           string
	claimSQL       string // see the variables below
	claimSomeSQL   string // with a condition on id
	removeSpansSQL string // with a condition to append
	removeOneSQL   string // with a condition on one ID
	removeSQL      string
	deadLetterSQL  string
	delaySQL       string
	repeatSQL      string
}

// hot is the table that applications insert into.
var hot = &table{
	name:           "cache_outbox",
	claimSQL:       fmt.Sprintf(claimHotSQL, "id >= ?"),
	claimSomeSQL:   claimHotSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox") + "id = ?",
	removeSQL:      fmt.Sprintf(session.RemoveSQL, "cache_outbox"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.id, 0, 0", "cache_outbox"),
	delaySQL:       fmt.Sprintf(delaySQL, "cache_outbox"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.id", "cache_outbox"),
}

// Contract: as claimHotSQL, over the index on due_at: for each row returned, its entry and the
// primary key's are locked. A condition on id follows; MariaDB also locks the rows that it leaves
// out.
const claimDelayedSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), COALESCE(trace, ''), created_at, first_id, attempts, repeated, COALESCE(error, '')
FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND %s ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED`

// delayed is the table of rows with a due time.
var delayed = &table{
	name:           "cache_outbox_delayed",
	claimSQL:       fmt.Sprintf(claimDelayedSQL, "TRUE"),
	claimSomeSQL:   claimDelayedSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed") + "id = ?",
	removeSQL:      fmt.Sprintf(session.RemoveSQL, "cache_outbox_delayed"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.first_id, o.attempts, o.repeated", "cache_outbox_delayed"),
	delaySQL:       fmt.Sprintf(delayAgainSQL, "cache_outbox_delayed"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.first_id", "cache_outbox_delayed"),
}
