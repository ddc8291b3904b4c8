package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A Position is a position in the order of acknowledged writes: see package keyspace. The journal
// stores one for each batch. If Redis has the position, it still has the batch's unlinks. The zero
// Position protects nothing.
type Position struct {
	Epoch string `db:"epoch"` // at most 26 bytes
	N     uint64 `db:"beat"`
}

// highEpoch sorts after every epoch, since epochs consist of upper-case letters and digits, and
// before DamagedEpoch.
const highEpoch = "["

// Contract: no lock (a consistent read), one entry of the index on (epoch, beat), read backwards
// from the bound.
const lastPositionSQL = `SELECT epoch, beat FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch < ? ORDER BY epoch DESC, beat DESC LIMIT 1`

// LastPositions lists the last position of each epoch that has a batch in the journal. It runs one
// statement per epoch, since a GROUP BY reads the whole index whenever the statistics are outdated.
// Each process that worked within the journal's retention has two epochs.
func (j *Journal) LastPositions(ctx context.Context) ([]Position, error) {
	var positions []Position
	for bound := highEpoch; ; {
		b, err := j.lastPosition(ctx, bound)
		if err != nil {
			return nil, fmt.Errorf("list last positions: %w", err)
		}
		if b.Epoch == "" {
			return positions, nil
		}
		positions = append(positions, b)
		bound = b.Epoch
	}
}

// lastPosition returns the last position of the next epoch below a bound, or the zero Position.
func (j *Journal) lastPosition(ctx context.Context, bound string) (b Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	err = j.db.Side.GetContext(ctx, &b, lastPositionSQL, bound)
	if errors.Is(err, sql.ErrNoRows) {
		return Position{}, nil
	}
	return b, err
}

// Contract: no lock (a consistent read), the entries of the index on settled_at since a time, and
// their rows.
const recentPositionsSQL = `SELECT epoch, MAX(beat) AS beat FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND epoch > '' AND epoch < '` + highEpoch + `' GROUP BY epoch`

// RecentPositions lists the last position of each epoch that settled, healed or adopted a batch
// within the duration since. Each such action writes its row with the current time before the
// commit, so since should exceed the longest transaction.
func (j *Journal) RecentPositions(ctx context.Context, since time.Duration) (positions []Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	if err := j.db.Side.SelectContext(ctx, &positions, recentPositionsSQL, since.Microseconds()); err != nil {
		return nil, fmt.Errorf("list recent positions: %w", err)
	}
	return positions, nil
}

// Contract: exclusive locks on at most LIMIT rows of one epoch and on no other (READ COMMITTED,
// index on (epoch, beat), SKIP LOCKED). Repeating it elsewhere returns other rows.
const claimAdoptSQL = `SELECT id FROM cache_outbox_journal FORCE INDEX (beats) WHERE epoch = ? LIMIT ? FOR UPDATE SKIP LOCKED`

// Adopt moves batches of an epoch to another position, because nothing stale can be left of them.
// It moves up to limit batches that no other session has locked, and returns how many. Repeating it
// moves the next ones.
func (j *Journal) Adopt(ctx context.Context, epoch string, by Position, limit int) (adopted int, err error) {
	if adopted, err = j.adopt(ctx, epoch, by, limit); err != nil {
		return 0, fmt.Errorf("adopt batches of epoch %s: %w", epoch, err)
	}
	return adopted, nil
}

func (j *Journal) adopt(ctx context.Context, epoch string, by Position, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	tx, err := j.db.Claims.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	ids, err := claimAdopt(ctx, tx, epoch, limit)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := moveBatches(ctx, tx, ids, by, sql.Null[uint64]{}); err != nil {
		return 0, err
	}
	if err := j.notePosition(ctx, tx, by); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit()
}

func claimAdopt(ctx context.Context, tx *sql.Tx, epoch string, limit int) (ids []uint64, err error) {
	rows, err := tx.QueryContext(ctx, claimAdoptSQL, epoch, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
