package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A DeadLetter is a row that no retry cures as it is.
type DeadLetter struct {
	ID         uint64    `db:"id"`
	FirstID    uint64    `db:"first_id"` // in cache_outbox, where it began; 0 if it never was there
	Entity     string    `db:"entity"`
	EntityID   string    `db:"entity_id"`
	Params     *string   `db:"params"` // JSON text as written; nil if there are none
	Trace      string    `db:"trace"`
	CreatedAt  time.Time `db:"created_at"` // UTC, the database's clock; so is DiedAt
	DiedAt     time.Time `db:"died_at"`
	Attempts   int       `db:"attempts"` // before the last one
	Repeated   bool      `db:"repeated"` // a repeat that the map asked for
	Reason     string    `db:"reason"`
	Error      string    `db:"error"`
	MapVersion string    `db:"map_version"` // of the map that refused it
}

// A DeadQuery chooses dead letters: all that fulfil every field. Empty fields say nothing.
type DeadQuery struct {
	IDs        []uint64
	Entity     string
	Reason     string
	MapVersion string
	OlderThan  time.Duration // since they died, by the database's clock
	NewerThan  time.Duration
}

// deadChunk is how many dead letters one transaction retries or discards.
const deadChunk = 200

// deadFilter is a DeadQuery in SQL, but for its ids.
const deadFilter = `(? = '' OR entity = ?) AND (? = '' OR reason = ?) AND (? = '' OR map_version = ?)
AND (? = 0 OR died_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
AND (? = 0 OR died_at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
AND (? IS NULL OR id IN (SELECT j.id FROM JSON_TABLE(COALESCE(?, '[]'), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j))`

// Contract for all: the primary key of cache_outbox_dead is read from end to end, since only operators read it and only
// they let it grow. The last one locks the rows that it returns (READ COMMITTED), at most LIMIT; repeating it waits for
// whoever holds them.
const (
	listDeadSQL = `SELECT id, first_id, entity, entity_id, params, trace, created_at, died_at, attempts, repeated, reason, error, map_version
FROM cache_outbox_dead WHERE ` + deadFilter + ` ORDER BY id DESC LIMIT ?`
	countDeadSQL = "SELECT COUNT(*) AS n, COALESCE(MAX(id), 0) AS last FROM cache_outbox_dead WHERE " + deadFilter
	lockDeadSQL  = "SELECT id FROM cache_outbox_dead FORCE INDEX (PRIMARY) WHERE id > ? AND id <= ? AND " + deadFilter + " ORDER BY id LIMIT ? FOR UPDATE"
)

func (q *DeadQuery) args() []any {
	var ids any
	if len(q.IDs) > 0 {
		list, _ := json.Marshal(q.IDs) // numbers always can be
		ids = string(list)
	}
	older, newer := q.OlderThan.Microseconds(), q.NewerThan.Microseconds()
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.MapVersion, q.MapVersion, older, older, newer, newer, ids, ids}
}

// DeadLetters lists the newest that q chooses, at most limit, newest first.
func (s *Store) DeadLetters(ctx context.Context, q DeadQuery, limit int) ([]DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var out []DeadLetter
	if err := s.side.SelectContext(ctx, &out, listDeadSQL, append(q.args(), limit)...); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return out, nil
}

// CountDead counts those that q chooses.
func (s *Store) CountDead(ctx context.Context, q DeadQuery) (int, error) {
	n, _, err := s.countDead(ctx, q)
	return n, err
}

func (s *Store) countDead(ctx context.Context, q DeadQuery) (n int, last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.side.QueryRowContext(ctx, countDeadSQL, q.args()...).Scan(&n, &last); err != nil {
		return 0, 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, last, nil
}

// RetryDead puts the dead letters that q chooses back exactly as they were. One that died in cache_outbox gets its own id
// there, or a new one if that is taken; one that was delayed, or a repeat, is due at once, its attempts forgotten. Those
// that are buried meanwhile stay. It goes in transactions of 200 and calls did after each; when ctx ends, what was put
// back stays so. It returns the ids, which two callers never share.
func (s *Store) RetryDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return s.eachDead(ctx, "retry", q, did, putBack)
}

// DiscardDead deletes the dead letters that q chooses, as RetryDead puts them back.
func (s *Store) DiscardDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return s.eachDead(ctx, "discard", q, did, func(_ context.Context, _ *sql.Tx, ids []uint64) ([]uint64, error) { return ids, nil })
}

// eachDead runs do over the chosen letters and deletes them, chunk by chunk.
func (s *Store) eachDead(ctx context.Context, verb string, q DeadQuery, did func(total int),
	do deadFunc) (done []uint64, err error) {
	_, last, err := s.countDead(ctx, q)
	if err != nil {
		return nil, err
	}
	var left []uint64
	for from := uint64(0); from < last; {
		ids, gone, err := s.deadPart(ctx, q, from, last, do)
		if err != nil {
			return done, fmt.Errorf("%s dead letters: %w", verb, err)
		}
		if len(ids) == 0 {
			break
		}
		from, done = ids[len(ids)-1], append(done, gone...)
		for _, id := range ids {
			if !slices.Contains(gone, id) {
				left = append(left, id)
			}
		}
		did(len(done))
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
	}
	if len(left) > 0 {
		return done, &NotJSONError{left}
	}
	return done, nil
}

// A NotJSONError says that dead letters can't go back, since the tables that they came from take no parameters that are
// no JSON. A server whose checks were off for a while has let them in.
type NotJSONError struct{ IDs []uint64 }

// Error implements error.
func (e *NotJSONError) Error() string {
	return fmt.Sprintf("the parameters of dead letters %d are no JSON, so that no table takes them; "+
		"correct them with UPDATE cache_outbox_dead SET params = ..., or discard them", e.IDs)
}

// A deadFunc does something with letters that the transaction has locked, and returns those that may be deleted.
type deadFunc func(ctx context.Context, tx *sql.Tx, ids []uint64) (gone []uint64, err error)

// deadPart does one chunk in a transaction of its own, which it finishes even when ctx ends.
func (s *Store) deadPart(ctx context.Context, q DeadQuery, from, last uint64, do deadFunc) (ids, gone []uint64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout)
	defer cancel()
	tx, err := s.side.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if ids, err = lockDead(ctx, tx, q, from, last); err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	if gone, err = do(ctx, tx, ids); err != nil {
		return nil, nil, err
	}
	list, err := json.Marshal(gone)
	if err != nil {
		return nil, nil, err
	}
	res, err := tx.ExecContext(ctx, removeDeadSQL, string(list))
	if err != nil {
		return nil, nil, err
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(gone)) {
		return nil, nil, errors.Join(err, fmt.Errorf("%d of %d locked rows were deleted", n, len(gone)))
	}
	return ids, gone, tx.Commit()
}

func lockDead(ctx context.Context, tx *sql.Tx, q DeadQuery, from, last uint64) (ids []uint64, err error) {
	rows, err := tx.QueryContext(ctx, lockDeadSQL, slices.Concat([]any{from, last}, q.args(), []any{deadChunk})...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// hotDead says of a dead letter that it died in cache_outbox: it was neither delayed before nor a repeat.
const hotDead = "o.first_id > 0 AND o.attempts = 0 AND o.repeated = 0"

// listedDead joins the letters listed, as removeSQL does.
const listedDead = `FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_dead AS o FORCE INDEX (PRIMARY) ON o.id = j.id WHERE `

// Contract for all: as removeSQL and burySQL, for the letters listed, which the transaction has locked. Their effect ends
// with it.
var (
	removeDeadSQL = fmt.Sprintf(removeSQL, "cache_outbox_dead")
	hotAsItWasSQL = "INSERT INTO cache_outbox (id, entity, entity_id, params, trace, created_at) " +
		"SELECT o.first_id, o.entity, o.entity_id, o.params, o.trace, o.created_at " + listedDead + hotDead
	hotAnewSQL = "INSERT INTO cache_outbox (entity, entity_id, params, trace, created_at) " +
		"SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at " + listedDead + hotDead
	delayedAsItWasSQL = "INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated) " +
		"SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated " + listedDead + "NOT (" + hotDead + ")"
)

// putBack copies letters to where they died, inside the server, so that they stay exactly as they were. It returns those
// that the tables take.
func putBack(ctx context.Context, tx *sql.Tx, ids []uint64) (gone []uint64, err error) {
	err = putBackAll(ctx, tx, ids)
	if !isNotJSON(err) {
		return ids, err
	}
	for i := range ids { // which one it is shows when each goes alone
		switch err := putBackAll(ctx, tx, ids[i:i+1]); {
		case err == nil:
			gone = append(gone, ids[i])
		case !isNotJSON(err):
			return nil, err
		}
	}
	return gone, nil
}

// putBackAll puts back all letters or, where parameters are no JSON, none.
func putBackAll(ctx context.Context, tx *sql.Tx, ids []uint64) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT letters"); err != nil {
		return err
	}
	err := putBackHot(ctx, tx, ids)
	if isTaken(err) { // one of the ids; which one shows when each goes alone
		for i := range ids {
			if err = putBackHot(ctx, tx, ids[i:i+1]); isTaken(err) {
				err = execListed(ctx, tx, hotAnewSQL, ids[i:i+1])
			}
			if err != nil {
				break
			}
		}
	}
	if err == nil {
		err = execListed(ctx, tx, delayedAsItWasSQL, ids)
	}
	if isNotJSON(err) {
		if _, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT letters"); undo != nil {
			return undo
		}
	}
	return err
}

// putBackHot is undone by the server if an id is taken: a statement that fails has no effect.
func putBackHot(ctx context.Context, tx *sql.Tx, ids []uint64) error {
	return execListed(ctx, tx, hotAsItWasSQL, ids)
}

func execListed(ctx context.Context, tx *sql.Tx, query string, ids []uint64) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, query, string(list))
	return err
}
