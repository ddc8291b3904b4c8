package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// deadChunk is how many dead letters one transaction retries or discards.
const deadChunk = 200

// A deadVerb is what is done with dead letters before they are deleted.
type deadVerb struct {
	name    string
	action  string
	lockSQL string
	copySQL string // empty: nothing
}

// Contract of both: locks the letters that they return and no others (READ COMMITTED, primary key), at most LIMIT;
// repeating them waits for whoever holds them. The second column reports whether cache_outbox_delayed takes the letter.
const (
	lockRetrySQL   = "SELECT id, COALESCE(JSON_VALID(params), 1) " + lockDeadSQL
	lockDiscardSQL = "SELECT id, 1 " + lockDeadSQL
	lockDeadSQL    = "FROM cache_outbox_dead FORCE INDEX (PRIMARY) WHERE id > ? AND id <= ? AND " + deadFilter + " ORDER BY id LIMIT ? FOR UPDATE"
)

// Contract: as deadLetterSQL, for the letters listed, which the transaction has locked: appends as many rows. Its
// effect ends with the transaction.
const putBackSQL = `INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_dead AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: as removeSQL, for the letters listed, which the transaction has locked.
var removeDeadSQL = fmt.Sprintf(removeSQL, "cache_outbox_dead")

// RetryDead puts the dead letters that q chooses into cache_outbox_delayed, due at once, under new ids. Their first
// ids, parameters, traces and times stay as they are; their attempts are forgotten. Those that die meanwhile stay dead.
// It goes in transactions of 200 and calls did after each; when ctx ends, what was put back stays so. It returns the
// ids of the letters, which two callers never share. A letter that the table does not take stays, see NotJSONError. The
// audit has a record for each transaction, in it.
func (s *Store) RetryDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return s.eachDead(ctx, q, did, deadVerb{"retry", ActionRetry, lockRetrySQL, putBackSQL})
}

// DiscardDead deletes the dead letters that q chooses, in such transactions.
func (s *Store) DiscardDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return s.eachDead(ctx, q, did, deadVerb{"discard", ActionDiscard, lockDiscardSQL, ""})
}

// A NotJSONError says that dead letters cannot be put back, since no table takes parameters that are not JSON. A server
// whose checks were off for a while has let them in.
type NotJSONError struct{ IDs []uint64 }

// Error implements error.
func (e *NotJSONError) Error() string {
	return fmt.Sprintf("the parameters of dead letters %d are not JSON, so that no table takes them; "+
		"correct them with UPDATE cache_outbox_dead SET params = ..., or discard them", e.IDs)
}

// eachDead does something with the chosen letters that exist now and deletes them, chunk by chunk.
func (s *Store) eachDead(ctx context.Context, q DeadQuery, did func(total int), verb deadVerb) (done []uint64, err error) {
	_, last, err := s.countDead(ctx, q)
	if err != nil {
		return nil, err
	}
	var unfit []uint64
	for from := uint64(0); from < last; {
		part, err := s.deadPart(ctx, q, from, last, verb)
		if err != nil {
			return done, fmt.Errorf("%s dead letters: %w", verb.name, err)
		}
		if part.last == 0 {
			break
		}
		from, done, unfit = part.last, append(done, part.fit...), append(unfit, part.unfit...)
		did(len(done))
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
	}
	if len(unfit) > 0 {
		return done, &NotJSONError{unfit}
	}
	return done, nil
}

// A deadPart is a chunk of letters, by id in ascending order.
type deadPart struct {
	fit, unfit []uint64 // for what is done with them
	last       uint64   // of both; 0: there are none
}

// deadPart does one chunk in a transaction of its own, which it finishes even when ctx ends.
func (s *Store) deadPart(ctx context.Context, q DeadQuery, from, last uint64, verb deadVerb) (deadPart, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout)
	defer cancel()
	tx, err := s.side.BeginTx(ctx, nil)
	if err != nil {
		return deadPart{}, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	part, err := lockDead(ctx, tx, verb.lockSQL, slices.Concat([]any{from, last}, q.args(), []any{deadChunk}))
	if err != nil || len(part.fit) == 0 {
		return part, err
	}
	list, err := json.Marshal(part.fit)
	if err != nil {
		return deadPart{}, err
	}
	for _, query := range []string{verb.copySQL, removeDeadSQL} {
		if query == "" {
			continue
		}
		n, err := affected(tx.ExecContext(ctx, query, string(list)))
		if err == nil && n != int64(len(part.fit)) {
			err = fmt.Errorf("%d of %d locked letters were there", n, len(part.fit))
		}
		if err != nil {
			return deadPart{}, err
		}
	}
	if err := s.audit(ctx, tx, verb.action, q.recorded(part.fit), len(part.fit)); err != nil {
		return deadPart{}, err
	}
	return part, tx.Commit()
}

// recorded is what the audit keeps of an action on letters: how they were chosen, and which they were.
func (q *DeadQuery) recorded(ids []uint64) any {
	return struct {
		Entity     string   `json:"entity,omitempty"`
		Reason     string   `json:"reason,omitempty"`
		MapVersion string   `json:"map_version,omitempty"`
		OlderThan  float64  `json:"older_than_seconds,omitempty"`
		NewerThan  float64  `json:"newer_than_seconds,omitempty"`
		IDs        []uint64 `json:"ids"`
	}{q.Entity, q.Reason, q.MapVersion, q.OlderThan.Seconds(), q.NewerThan.Seconds(), ids}
}

func lockDead(ctx context.Context, tx *sql.Tx, query string, args []any) (part deadPart, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return deadPart{}, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var fits bool
		if err := rows.Scan(&part.last, &fits); err != nil {
			return deadPart{}, err
		}
		if fits {
			part.fit = append(part.fit, part.last)
		} else {
			part.unfit = append(part.unfit, part.last)
		}
	}
	return part, rows.Err()
}
