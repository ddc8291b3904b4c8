package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A Position is a place in the order of what Redis acknowledged: see package keyspace. The journal notes it for each
// batch, so that a Redis that has the position still has the batch. The zero Position protects nothing.
type Position struct {
	Epoch string `db:"epoch"` // at most 26 bytes
	N     uint64 `db:"beat"`
}

// highEpoch is beyond every epoch, which are of upper-case letters and digits, and before damagedEpoch.
const highEpoch = "["

// Contract: no lock (a consistent read), one entry of the index on (epoch, beat), read backwards from the bound.
const lastPositionSQL = `SELECT epoch, beat FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch < ? ORDER BY epoch DESC, beat DESC LIMIT 1`

// LastPositions lists the last position of each epoch that the journal has a batch of. It takes a statement for each: a
// GROUP BY would read the whole index whenever the statistics are behind. There are two epochs for each process that
// worked within the journal's retention.
func (s *Store) LastPositions(ctx context.Context) ([]Position, error) {
	var positions []Position
	for bound := highEpoch; ; {
		b, err := s.lastPosition(ctx, bound)
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

// lastPosition is the last position of the next epoch below a bound, the zero Position if there is none.
func (s *Store) lastPosition(ctx context.Context, bound string) (b Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	err = s.side.GetContext(ctx, &b, lastPositionSQL, bound)
	if errors.Is(err, sql.ErrNoRows) {
		return Position{}, nil
	}
	return b, err
}

// Contract: no lock (a consistent read), the entries of the index on settled_at since a time, and their rows.
const recentPositionsSQL = `SELECT epoch, MAX(beat) AS beat FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND epoch > '' AND epoch < '` + highEpoch + `' GROUP BY epoch`

// RecentPositions lists the last position of each epoch that settled, healed or adopted a batch within a time. Each
// leaves a row that is dated when it was written, before the commit, so that time should exceed the longest
// transaction.
func (s *Store) RecentPositions(ctx context.Context, since time.Duration) (positions []Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	if err := s.side.SelectContext(ctx, &positions, recentPositionsSQL, since.Microseconds()); err != nil {
		return nil, fmt.Errorf("list recent positions: %w", err)
	}
	return positions, nil
}

// Contract: exclusive locks on at most LIMIT rows of one epoch and on no other (READ COMMITTED, index on (epoch, beat),
// SKIP LOCKED). Repeating it elsewhere returns other rows.
const claimAdoptSQL = `SELECT id FROM cache_outbox_journal FORCE INDEX (beats) WHERE epoch = ? LIMIT ? FOR UPDATE SKIP LOCKED`

// Adopt makes batches of an epoch those of another position, because nothing stale can be left of them, and returns how
// many: at most limit, of those that nobody else has in hand. Repeating it moves the next ones.
func (s *Store) Adopt(ctx context.Context, epoch string, by Position, limit int) (adopted int, err error) {
	if adopted, err = s.adopt(ctx, epoch, by, limit); err != nil {
		return 0, fmt.Errorf("adopt batches of epoch %s: %w", epoch, err)
	}
	return adopted, nil
}

func (s *Store) adopt(ctx context.Context, epoch string, by Position, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	tx, err := s.claims.BeginTx(ctx, nil)
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
	if err := s.notePosition(ctx, tx, by); err != nil {
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
