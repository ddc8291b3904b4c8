package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/outbox"
)

// A DeadLetter is a row that cannot succeed by a retry alone, with the JSON of `unstale dead`.
type DeadLetter struct {
	ID         uint64    `db:"id" json:"id"`
	Entity     string    `db:"entity" json:"entity"`
	EntityID   string    `db:"entity_id" json:"entity_id"`
	Params     *string   `db:"params" json:"params"` // text as written, perhaps not well-formed; nil if there are none
	Trace      string    `db:"trace" json:"trace"`
	Reason     string    `db:"reason" json:"reason"`
	Error      string    `db:"error" json:"error"`
	MapVersion string    `db:"map_version" json:"map_version"` // of the map that refused it
	CreatedAt  time.Time `db:"created_at" json:"created_at"`   // UTC, the database's clock; so is DiedAt
	DiedAt     time.Time `db:"died_at" json:"died_at"`
	FirstID    uint64    `db:"first_id" json:"first_id"` // in cache_outbox, where it began; 0 if it never was in it
	Attempts   int       `db:"attempts" json:"attempts"` // before the last one
	Repeated   bool      `db:"repeated" json:"repeated"` // the map asked for this repeat
}

// A DeadQuery selects the dead letters that match every field. Empty fields match all.
type DeadQuery struct {
	IDs        []uint64
	Entity     string
	Reason     string
	MapVersion string
	OlderThan  time.Duration // time since they died, by the database's clock
	NewerThan  time.Duration
	At         time.Time // UTC, the end of OlderThan and NewerThan; zero: now, by the database's clock
	Last       uint64    // the greatest ID
}

// deadFilter is the SQL condition of a DeadQuery.
const deadFilter = `(? = '' OR entity = ?) AND (? = '' OR reason = ?) AND (? = '' OR map_version = ?)
AND (? = 0 OR died_at <= CAST(COALESCE(?, UTC_TIMESTAMP(6)) AS DATETIME(6)) - INTERVAL ? MICROSECOND)
AND (? = 0 OR died_at >= CAST(COALESCE(?, UTC_TIMESTAMP(6)) AS DATETIME(6)) - INTERVAL ? MICROSECOND)
AND (? = 0 OR id <= ?)
AND (? IS NULL OR id IN (SELECT j.id FROM JSON_TABLE(COALESCE(?, '[]'), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j))`

// Contract for all: read the whole primary key of cache_outbox_dead, since only operators read it
// and it grows only by dead letters that they have not handled. No lock.
const (
	listDeadSQL = `SELECT id, first_id, entity, entity_id, params, trace, created_at, died_at, attempts, repeated, reason, error, map_version
FROM cache_outbox_dead WHERE ` + deadFilter + ` ORDER BY id DESC LIMIT ?`
	countDeadSQL = "SELECT COUNT(*) AS n, COALESCE(MAX(id), 0) AS last FROM cache_outbox_dead WHERE " + deadFilter
)

// Contract: reads all of the index on reason, which only operators let grow. No lock.
const deadReasonsSQL = "SELECT reason, COUNT(*) AS n FROM cache_outbox_dead GROUP BY reason"

// DeadReasons counts the dead letters of each reason.
func (o *Actions) DeadReasons(ctx context.Context) (map[string]int, error) {
	var dead []struct {
		Reason string `db:"reason"`
		N      int    `db:"n"`
	}
	if err := o.db.ReadRows(ctx, &dead, deadReasonsSQL); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, d := range dead {
		counts[d.Reason] = d.N
	}
	return counts, nil
}

func (q *DeadQuery) args() []any {
	var ids any
	if len(q.IDs) > 0 {
		ids = jsonText(q.IDs)
	}
	at := sql.NullTime{Time: q.At, Valid: !q.At.IsZero()}
	older, newer := q.OlderThan.Microseconds(), q.NewerThan.Microseconds()
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.MapVersion, q.MapVersion, older, at, older, newer, at, newer, q.Last, q.Last, ids, ids}
}

// DeadLetters lists the newest dead letters that match q, at most limit, newest first.
func (o *Actions) DeadLetters(ctx context.Context, q DeadQuery, limit int) (list []DeadLetter, err error) {
	err = o.db.ReadRows(ctx, &list, listDeadSQL, append(q.args(), limit)...)
	return list, dberr.Wrap(err, "list dead letters")
}

// CountDead counts the dead letters that match q, and returns the greatest ID of these, or 0.
func (o *Actions) CountDead(ctx context.Context, q DeadQuery) (n int, last uint64, err error) {
	var found struct {
		N    int
		Last uint64
	}
	err = o.db.ReadRow(ctx, &found, countDeadSQL, q.args()...)
	return found.N, found.Last, dberr.Wrap(err, "count dead letters")
}

// deadChunk is how many dead letters one transaction retries or discards.
const deadChunk = 200

// A deadVerb is the action on dead letters before they are deleted.
type deadVerb struct {
	name    string
	action  string
	lockSQL string
	copySQL string                   // empty if nothing is copied
	refused func(ids []uint64) error // about the letters that stay
}

// Contract of both: locks the letters that they return and no others (READ COMMITTED, primary key),
// at most LIMIT. Repeating them waits for the current holder. The second column reports whether the
// verb applies: whether cache_outbox_delayed accepts the letter, and whether no write token needs
// it.
var (
	lockRetrySQL   = "SELECT id, COALESCE(JSON_VALID(params), 1) AS fits " + lockDeadSQL
	lockDiscardSQL = fmt.Sprintf("SELECT id, repeated > 0 OR first_id = 0 OR died_at <= UTC_TIMESTAMP(6) - INTERVAL %d SECOND AS fits ", outbox.TokenLifetime/time.Second) + lockDeadSQL
)

const lockDeadSQL = "FROM cache_outbox_dead FORCE INDEX (PRIMARY) WHERE id > ? AND id <= ? AND " + deadFilter + " ORDER BY id LIMIT ? FOR UPDATE"

// Contract: as deadLetterSQL, for the letters listed, which the transaction has locked: appends as
// many rows. Its effect ends with the transaction.
const putBackSQL = `INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated)
SELECT o.entity, o.entity_id, o.params, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_dead AS o FORCE INDEX (PRIMARY) ON o.id = j.id`

// Contract: as RemoveSQL, for the letters listed, which the transaction has locked.
var removeDeadSQL = fmt.Sprintf(session.RemoveSQL, "cache_outbox_dead")

// RetryDead moves the dead letters that match q to cache_outbox_delayed, due immediately, under new
// IDs. Their first IDs, parameters, traces and creation times stay; their attempts are reset. Rows
// that die during the call stay dead.
//
// The move is done in transactions of 200, and did is called after each. If ctx ends, finished
// transactions remain. RetryDead returns the IDs of the moved letters; two callers never get the
// same ID. A letter that the table does not accept stays: see NotJSONError. Each transaction
// includes its audit record.
func (o *Actions) RetryDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return o.eachDead(ctx, q, did, deadVerb{"retry", ActionRetry, lockRetrySQL, putBackSQL, func(ids []uint64) error { return &NotJSONError{ids} }})
}

// DiscardDead deletes the dead letters that match q, in transactions like those of RetryDead. A
// letter that died within outbox.TokenLifetime stays if a write token can name it: the keys of its
// row were not unlinked, and without the letter the token would report the row as settled.
func (o *Actions) DiscardDead(ctx context.Context, q DeadQuery, did func(total int)) ([]uint64, error) {
	return o.eachDead(ctx, q, did, deadVerb{"discard", ActionDiscard, lockDiscardSQL, "", func(ids []uint64) error {
		return fmt.Errorf("dead letters %d died less than %v ago, and write tokens would report their rows as settled; retry them, or discard them later", ids, outbox.TokenLifetime)
	}})
}

// A NotJSONError reports that dead letters cannot be put back: their parameters are not JSON, and
// no table accepts them. They were inserted while the server's checks were off.
type NotJSONError struct{ IDs []uint64 }

// Error implements error.
func (e *NotJSONError) Error() string {
	return fmt.Sprintf("the parameters of dead letters %d are not JSON, so no table accepts them; "+
		"correct them with UPDATE cache_outbox_dead SET params = ..., or discard them", e.IDs)
}

// eachDead applies verb to the matching letters that exist now, in chunks, and deletes them.
func (o *Actions) eachDead(ctx context.Context, q DeadQuery, did func(total int), verb deadVerb) (done []uint64, err error) {
	_, last, err := o.CountDead(ctx, q)
	if err != nil {
		return nil, err
	}
	var unfit []uint64
	for from := uint64(0); from < last; {
		part, err := o.deadPart(ctx, q, from, last, verb)
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
		return done, verb.refused(unfit)
	}
	return done, nil
}

// A deadPart is a chunk of letters, by ID in ascending order.
type deadPart struct {
	fit, unfit []uint64 // whether the verb can be applied
	last       uint64   // greatest ID of both; 0 if there are none
}

// deadPart handles one chunk in its own transaction, which it finishes even if ctx ends.
func (o *Actions) deadPart(ctx context.Context, q DeadQuery, from, last uint64, verb deadVerb) (part deadPart, err error) {
	record := &deadRecord{
		Entity: q.Entity, Reason: q.Reason, MapVersion: q.MapVersion,
		OlderThan: q.OlderThan.Seconds(), NewerThan: q.NewerThan.Seconds(), At: q.At, Last: q.Last,
	}
	err = o.audited(context.WithoutCancel(ctx), verb.action, record, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		part, err = lockDead(ctx, tx, verb.lockSQL, slices.Concat([]any{from, last}, q.args(), []any{deadChunk}))
		if err != nil || len(part.fit) == 0 {
			return -1, err
		}
		record.IDs = part.fit
		for _, query := range []string{verb.copySQL, removeDeadSQL} {
			if query == "" {
				continue
			}
			n, err := session.Affected(tx.ExecContext(ctx, query, jsonText(part.fit)))
			if err == nil && n != int64(len(part.fit)) {
				err = fmt.Errorf("%d of %d locked letters were found", n, len(part.fit))
			}
			if err != nil {
				return 0, err
			}
		}
		return len(part.fit), nil
	})
	return part, err
}

// A deadRecord is the audit's record of an action on letters: how they were selected, and their
// IDs.
type deadRecord struct {
	Entity     string    `json:"entity,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	MapVersion string    `json:"map_version,omitempty"`
	OlderThan  float64   `json:"older_than_seconds,omitempty"`
	NewerThan  float64   `json:"newer_than_seconds,omitempty"`
	At         time.Time `json:"at,omitzero"`
	Last       uint64    `json:"last_id,omitempty"`
	IDs        []uint64  `json:"ids"`
}

func lockDead(ctx context.Context, tx *sqlx.Tx, query string, args []any) (part deadPart, err error) {
	var letters []struct {
		ID   uint64
		Fits bool
	}
	if err := tx.SelectContext(ctx, &letters, query, args...); err != nil {
		return deadPart{}, err
	}
	for _, l := range letters {
		if part.last = l.ID; l.Fits {
			part.fit = append(part.fit, l.ID)
		} else {
			part.unfit = append(part.unfit, l.ID)
		}
	}
	return part, nil
}

// A Correction is one dead letter as it was read, and the values to put it back with.
type Correction struct {
	Letter DeadLetter
	Entity string
	Params *string // JSON text, put back byte for byte; nil: none
}

// ErrLetterChanged reports that a dead letter is no longer as it was read, because another operator
// acted first.
var ErrLetterChanged = errors.New("the dead letter has changed or is gone; read it again with `unstale dead show`")

// Contract: as putBackSQL, for one letter, which it locks. It appends one row, or none if the
// letter has changed. Its effect ends with the transaction.
const putBackCorrectedSQL = `INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated)
SELECT ?, o.entity_id, ?, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated
FROM cache_outbox_dead AS o FORCE INDEX (PRIMARY)
WHERE o.id = ? AND o.entity = ? AND o.entity_id = ? AND o.params <=> ? FOR UPDATE`

// RetryCorrected puts one dead letter back as RetryDead does, with another entity or other
// parameters. The audit keeps the old and the new values, but only the first 4 KiB of parameters.
func (o *Actions) RetryCorrected(ctx context.Context, c Correction) error {
	l := &c.Letter
	arguments := struct {
		ID           uint64  `json:"id"`
		Entity       string  `json:"entity"`
		Params       *string `json:"params"`
		EntityBefore string  `json:"entity_before"`
		ParamsBefore *string `json:"params_before"`
		EntityID     string  `json:"entity_id"`
	}{l.ID, c.Entity, head(c.Params), l.Entity, head(l.Params), l.EntityID}
	err := o.audited(context.WithoutCancel(ctx), ActionCorrect, arguments, func(ctx context.Context, tx *sqlx.Tx) (int, error) {
		n, err := session.Affected(tx.ExecContext(ctx, putBackCorrectedSQL, c.Entity, c.Params, l.ID, l.Entity, l.EntityID, l.Params))
		if err == nil && n == 1 {
			n, err = session.Affected(tx.ExecContext(ctx, removeDeadSQL, fmt.Sprintf("[%d]", l.ID)))
		}
		if err == nil && n != 1 {
			err = ErrLetterChanged
		}
		return 1, err
	})
	return dberr.Wrap(err, fmt.Sprintf("retry dead letter %d", l.ID))
}

// head returns the part of a text that the audit keeps.
func head(text *string) *string {
	if text == nil {
		return nil
	}
	return new(session.ErrorText(*text))
}
