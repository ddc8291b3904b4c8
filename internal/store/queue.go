package store

import (
	"fmt"
)

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
	removeSpansSQL string // a condition follows
	removeOneSQL   string // with one
	removeSQL      string
	deadLetterSQL  string
	delaySQL       string
	repeatSQL      string
}

// A disposal is one element of such a list.
type disposal struct {
	ID       uint64 `json:"id"`
	After    int64  `json:"after,omitempty"` // microseconds
	Attempts int    `json:"attempts,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Error    string `json:"error,omitempty"`
	Map      string `json:"map,omitempty"` // version
}

// Contract: exclusive record locks on the rows listed, which the claim holds already, found by primary key; no other
// row is looked at. As many rows as are listed. Repeating it deletes nothing.
const removeSQL = `DELETE o
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: as removeSQL, for the rows of a condition on id that follows. The comments are each executed by one of the
// two servers, so that statistics cannot make either scan the table. Both use the safe mode: MariaDB's then forces a
// range, in a statement about one table; MySQL's refuses a scan before a row was looked at (1175, see isScan), in one
// that could be about several.
const removeSpansSQL = "/*M!100100 SET STATEMENT sql_safe_updates=1 FOR */ DELETE /*+ SET_VAR(sql_safe_updates=1) */ /*!80000 o */ " +
	"FROM %s /*!80000 AS o FORCE INDEX (PRIMARY) */ WHERE "

// listed joins the rows listed to a table, as removeSQL does.
const listed = `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$.id', after BIGINT PATH '$.after' DEFAULT '0' ON EMPTY,
  attempts INT PATH '$.attempts' DEFAULT '0' ON EMPTY, reason VARCHAR(32) PATH '$.reason' DEFAULT '""' ON EMPTY,
  error TEXT PATH '$.error' DEFAULT '""' ON EMPTY, map VARCHAR(12) PATH '$.map' DEFAULT '""' ON EMPTY)) AS j
STRAIGHT_JOIN %s AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: reads rows of the claim by primary key without a lock (READ COMMITTED), appends as many to the dead
// letters. Its effect ends with the claim's transaction, so repeating it takes a new claim.
const deadLetterSQL = `INSERT INTO cache_outbox_dead
(entity, entity_id, params, trace, created_at, first_id, attempts, repeated, reason, error, map_version)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, %s, j.reason, j.error, j.map
FROM ` + listed

// Contract: as deadLetterSQL, to cache_outbox_delayed.
const (
	delaySQL = `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, first_id, due_at, attempts, reason, error)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, o.id,
  UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, j.attempts, j.reason, j.error
FROM ` + listed
	repeatSQL = `INSERT INTO cache_outbox_delayed
(entity, entity_id, params, trace, created_at, first_id, due_at, repeated)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, %s,
  UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, 1
FROM ` + listed
)

// Contract: exclusive record locks on the rows listed, which the claim holds already, and on their entries of the index
// on due_at. Repeating it moves due_at again.
const putOffSQL = `UPDATE ` + listed + `
SET o.due_at = UTC_TIMESTAMP(6) + INTERVAL j.after MICROSECOND, o.attempts = j.attempts, o.reason = j.reason, o.error = j.error`

// A boundQuery is a statement of a claim, with its arguments but the last, which limits the rows.
type boundQuery struct {
	query string
	args  []any
}

// claimQueries are the statements of a claim, oldest rows first. Parameters of more than inline bytes are left out.
func (q *queue) claimQueries(inline int, at start) (list []boundQuery) {
	if q != hot {
		return []boundQuery{{q.claimSQL, []any{inline}}}
	}
	if len(at.stragglers) > 0 {
		list = append(list, boundQuery{fmt.Sprintf(claimHotSQL, spanned(at.stragglers)), []any{inline}})
	}
	return append(list, boundQuery{q.claimSQL, []any{inline, at.head}})
}

// Contract of a claim of ids from one on or of those listed: exclusive record locks on the rows that it returns and on
// no other (READ COMMITTED, primary key, SKIP LOCKED), LIMIT rows; repeating it elsewhere returns other rows. The hint
// keeps the optimizer from a scan in another order. Larger parameters come as NULL with their length.
const claimHotSQL = `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), trace, created_at
FROM cache_outbox FORCE INDEX (PRIMARY) WHERE %s ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED`

// hot is what applications insert into.
var hot = &queue{
	name:           "cache_outbox",
	claimSQL:       fmt.Sprintf(claimHotSQL, "id >= ?"),
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox") + "id = ?",
	removeSQL:      fmt.Sprintf(removeSQL, "cache_outbox"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.id, 0, 0", "cache_outbox"),
	delaySQL:       fmt.Sprintf(delaySQL, "cache_outbox"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.id", "cache_outbox"),
}

// delayed holds the rows with a time. The contract of its claim is that of hot, over the index on due_at: its entry and
// the primary key's are locked for each row returned.
var delayed = &queue{
	name: "cache_outbox_delayed",
	claimSQL: `SELECT id, entity, entity_id, IF(LENGTH(params) <= ?, params, NULL),
COALESCE(LENGTH(params), 0), trace, created_at, first_id, attempts, repeated
FROM cache_outbox_delayed FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED`,
	removeSpansSQL: fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed"),
	removeOneSQL:   fmt.Sprintf(removeSpansSQL, "cache_outbox_delayed") + "id = ?",
	removeSQL:      fmt.Sprintf(removeSQL, "cache_outbox_delayed"),
	deadLetterSQL:  fmt.Sprintf(deadLetterSQL, "o.first_id, o.attempts, o.repeated", "cache_outbox_delayed"),
	delaySQL:       fmt.Sprintf(putOffSQL, "cache_outbox_delayed"),
	repeatSQL:      fmt.Sprintf(repeatSQL, "o.first_id", "cache_outbox_delayed"),
}
