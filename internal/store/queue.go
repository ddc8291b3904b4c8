package store

import "fmt"

// A queue is a table that rows are claimed from, with its statements. Each statement but the claim and the removal of
// spans takes a JSON list of the rows it is about, which JSON_TABLE joins to the table in a fixed order by the primary
// key. Nothing less holds the server to those rows: a queue's statistics swing between empty and full, and with
//
//	DELETE ... WHERE id IN (...)                    -- and also with
//	DELETE ... WHERE id IN (...) ORDER BY id LIMIT n
//
// MySQL 9.7 may scan the table from its start and wait for the first uncommitted insert; MariaDB 10.11 may do so with
// the former.
type queue struct {
	name           string
	claimSQL       string // see the variables below
	claimSomeSQL   string // with a condition on id
	removeSpansSQL string // a condition follows
	removeOneSQL   string // with one
	removeSQL      string
	deadLetterSQL  string
	delaySQL       string
	repeatSQL      string
}

// hot is what applications insert into.
var hot = &queue{
	name:           "cache_outbox",
	claimSQL:       fmt.Sprintf(claimHotSQL, "id >= ?"),
	claimSomeSQL:   claimHotSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox") + "id = ?",
	removeSQL:      fmt.Sprintf(removeSQL, "cache_outbox"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.id, 0, 0", "cache_outbox"),
	delaySQL:       fmt.Sprintf(delaySQL, "cache_outbox"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.id", "cache_outbox"),
}

// Contract: as claimHotSQL, over the index on due_at: its entry and the primary key's are locked for each row returned.
// A condition on id follows; MariaDB also locks the rows that it leaves out.
const claimDelayedSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), trace, created_at, first_id, attempts, repeated, COALESCE(error, '')
FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND %s ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED`

// delayed holds the rows with a time.
var delayed = &queue{
	name:           "cache_outbox_delayed",
	claimSQL:       fmt.Sprintf(claimDelayedSQL, "TRUE"),
	claimSomeSQL:   claimDelayedSQL,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed") + "id = ?",
	removeSQL:      fmt.Sprintf(removeSQL, "cache_outbox_delayed"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.first_id, o.attempts, o.repeated", "cache_outbox_delayed"),
	delaySQL:       fmt.Sprintf(delayAgainSQL, "cache_outbox_delayed"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.first_id", "cache_outbox_delayed"),
}
