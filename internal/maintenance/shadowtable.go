package maintenance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

const (
	// keep is how many findings are stored.
	keep = 1000
	// read bounds how many delayed rows and sweeps are examined. If there are more, the result is
	// unknown.
	read = 1000
	// shadowSlack is by how much the clocks of Redis and MySQL may differ.
	shadowSlack = time.Minute
)

// Contract for all: no lock (consistent reads, of one snapshot); at most LIMIT rows of one index.
const (
	delayedSQL = `SELECT COUNT(*), COALESCE(SUM(repeated = 0 AND (attempts > 0 OR due_at <= UTC_TIMESTAMP(6))), 0)
FROM (SELECT repeated, attempts, due_at FROM cache_outbox_delayed FORCE INDEX (PRIMARY) LIMIT ?) AS some`
	deadSQL   = "SELECT COUNT(*) FROM (SELECT 1 FROM cache_outbox_dead FORCE INDEX (died) WHERE died_at >= ? LIMIT 1) AS some"
	sweepsSQL = "SELECT kind, name FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) LIMIT ?"
)

// Contract for the first: an exclusive lock for one statement on one row by primary key; repeating
// it is harmless. The second and the third read at most 1,001 entries of an index. The fourth deletes
// the oldest rows by the index on the time. The last two take no lock, and read at most all entries.
const (
	insertSQL = `INSERT IGNORE INTO cache_outbox_shadow (id, cache_key, tags, entities, outcome, process, leased_at, loaded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	countSQL = "SELECT COUNT(*) FROM cache_outbox_shadow"
	knownSQL = "SELECT id FROM cache_outbox_shadow"
	trimSQL  = "DELETE FROM cache_outbox_shadow ORDER BY confirmed_at LIMIT ?"

	columns   = "SELECT cache_key, entities, outcome, process, leased_at, loaded_at, confirmed_at FROM cache_outbox_shadow "
	latestSQL = columns + "ORDER BY confirmed_at DESC LIMIT ?"
	ofSQL     = columns + "WHERE cache_key = ? ORDER BY confirmed_at DESC LIMIT ?"
)

// A Table is cache_outbox_shadow, and the tables that can explain a difference. Safe for concurrent
// use.
type ShadowTable struct{ db *session.Sessions }

// NewShadowTable returns the Table of an outbox.
func NewShadowTable(db *session.Sessions) *ShadowTable { return &ShadowTable{db} }

// Explains returns what may explain that an entry of that lease time differs, or "" if nothing
// does. reaches reports whether a pattern may match the key or its tags.
func (t *ShadowTable) Explains(ctx context.Context, leased time.Time, reaches func(pattern string) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	tx, err := t.db.Side.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // it has no writes
	var rows, failed, dead int
	if err := tx.QueryRowContext(ctx, delayedSQL, read+1).Scan(&rows, &failed); err != nil {
		return "", err
	}
	if failed > 0 || rows > read {
		return "delayed rows", nil
	}
	if err := tx.QueryRowContext(ctx, deadSQL, leased.Add(-shadowSlack)).Scan(&dead); err != nil {
		return "", err
	}
	if dead > 0 {
		return "dead letters", nil
	}
	var sweeps []struct {
		Kind string `db:"kind"`
		Name []byte `db:"name"`
	}
	if err := tx.SelectContext(ctx, &sweeps, sweepsSQL, read+1); err != nil {
		return "", err
	}
	if len(sweeps) > read {
		return "sweeps", nil
	}
	for _, s := range sweeps {
		if s.Kind != "pattern" || reaches(string(s.Name)) { // a set may have the key as a member
			return "sweeps", nil
		}
	}
	return "", nil
}

// Insert stores a finding, and deletes the oldest ones beyond the bound. It reports false if the
// entry is stored already.
func (t *ShadowTable) Insert(ctx context.Context, f *ShadowFinding) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	done, err := t.db.Side.ExecContext(ctx, insertSQL, f.id(), []byte(f.Key), list(f.Tags), list(f.Entities), f.Outcome, f.Process, f.Lease, f.Loaded)
	if err != nil {
		return false, fmt.Errorf("store a difference: %w", err)
	}
	inserted, err := done.RowsAffected()
	if err != nil || inserted == 0 {
		return false, err
	}
	count := 0
	if err := t.db.Side.GetContext(ctx, &count, countSQL); err != nil || count <= keep {
		return true, err
	}
	_, err = t.db.Side.ExecContext(ctx, trimSQL, count-keep)
	return true, err
}

// known returns the IDs of all findings, in a map that is never nil.
func (t *ShadowTable) known(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	var ids []string
	err := t.db.Side.SelectContext(ctx, &ids, knownSQL)
	all := make(map[string]bool, len(ids))
	for _, id := range ids {
		all[id] = true
	}
	return all, err
}

// Latest returns the newest findings, at most so many, the newest first.
func (t *ShadowTable) Latest(ctx context.Context, limit int) ([]ShadowStored, error) {
	return t.list(ctx, latestSQL, limit)
}

// Of returns the newest findings of a key, at most so many, the newest first.
func (t *ShadowTable) Of(ctx context.Context, key string, limit int) ([]ShadowStored, error) {
	return t.list(ctx, ofSQL, []byte(key), limit)
}

func (t *ShadowTable) list(ctx context.Context, query string, args ...any) (list []ShadowStored, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.db.Config.StatementTimeout)
	defer cancel()
	rows, err := t.db.Side.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read differences: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var s ShadowStored
		var entities []byte
		if err := rows.Scan(&s.Key, &entities, &s.Outcome, &s.Process, &s.Lease, &s.Loaded, &s.At); err != nil {
			return nil, fmt.Errorf("read differences: %w", err)
		}
		if err := json.Unmarshal(entities, &s.Entities); err != nil {
			return nil, fmt.Errorf("read differences: entities of %q: %w", s.Key, err)
		}
		list = append(list, s)
	}
	return list, rows.Err()
}
