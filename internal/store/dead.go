package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// A DeadLetter is a row that cannot succeed by a retry alone.
type DeadLetter struct {
	ID         uint64    `db:"id"`
	FirstID    uint64    `db:"first_id"` // in cache_outbox, where it began; 0 if it never was in it
	Entity     string    `db:"entity"`
	EntityID   string    `db:"entity_id"`
	Params     *string   `db:"params"` // JSON text as written; nil if there are none
	Trace      string    `db:"trace"`
	CreatedAt  time.Time `db:"created_at"` // UTC, the database's clock; so is DiedAt
	DiedAt     time.Time `db:"died_at"`
	Attempts   int       `db:"attempts"` // before the last one
	Repeated   bool      `db:"repeated"` // the map asked for this repeat
	Reason     string    `db:"reason"`
	Error      string    `db:"error"`
	MapVersion string    `db:"map_version"` // of the map that refused it
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
func (o *Orders) DeadReasons(ctx context.Context) (map[string]int, error) {
	var dead []struct {
		Reason string `db:"reason"`
		N      int    `db:"n"`
	}
	if err := o.db.Side.SelectContext(ctx, &dead, deadReasonsSQL); err != nil {
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
		list, _ := json.Marshal(q.IDs) // numbers always can be
		ids = string(list)
	}
	at := sql.NullTime{Time: q.At, Valid: !q.At.IsZero()}
	older, newer := q.OlderThan.Microseconds(), q.NewerThan.Microseconds()
	return []any{q.Entity, q.Entity, q.Reason, q.Reason, q.MapVersion, q.MapVersion, older, at, older, newer, at, newer, q.Last, q.Last, ids, ids}
}

// DeadLetters lists the newest dead letters that match q, at most limit, newest first.
func (o *Orders) DeadLetters(ctx context.Context, q DeadQuery, limit int) ([]DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	var out []DeadLetter
	if err := o.db.Side.SelectContext(ctx, &out, listDeadSQL, append(q.args(), limit)...); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return out, nil
}

// CountDead counts the dead letters that match q, and returns the greatest ID of these, or 0.
func (o *Orders) CountDead(ctx context.Context, q DeadQuery) (n int, last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.db.Config.StatementTimeout)
	defer cancel()
	if err := o.db.Side.QueryRowContext(ctx, countDeadSQL, q.args()...).Scan(&n, &last); err != nil {
		return 0, 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, last, nil
}
