package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A Beat is a place in the order of what Redis acknowledged: see package keyspace. The journal notes it for each batch,
// so that a Redis that has the beat still has the batch. The zero Beat protects nothing.
type Beat struct {
	Epoch string `db:"epoch"` // at most 26 bytes
	N     uint64 `db:"beat"`
}

// highEpoch is beyond every epoch: they are of upper-case letters and digits.
const highEpoch = "~"

// Contract: no lock (a consistent read), one entry of the index on (epoch, beat), read backwards from the bound.
const lastBeatSQL = `SELECT epoch, beat FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch < ? ORDER BY epoch DESC, beat DESC LIMIT 1`

// LastBeats lists the last beat of each epoch that the journal has a batch of. It takes a statement for each: a GROUP BY
// would read the whole index whenever the statistics are behind. Two epochs a process that worked within the journal's
// retention are usual.
func (s *Store) LastBeats(ctx context.Context) ([]Beat, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	var beats []Beat
	for bound := highEpoch; ; {
		var b Beat
		err := s.side.GetContext(ctx, &b, lastBeatSQL, bound)
		switch {
		case errors.Is(err, sql.ErrNoRows) || err == nil && b.Epoch == "":
			return beats, nil
		case err != nil:
			return nil, fmt.Errorf("list last beats: %w", err)
		}
		beats = append(beats, b)
		bound = b.Epoch
	}
}

// Contract: exclusive locks on at most LIMIT rows of one epoch, found by the index on (epoch, beat), for as long as the
// statement takes. Repeating it moves the next ones.
const adoptSQL = `UPDATE cache_outbox_journal FORCE INDEX (beats) SET epoch = ?, beat = ? WHERE epoch = ? LIMIT ?`

// Adopt makes batches of an epoch those of another beat, because nothing stale can be left of them, and says how many.
// Repeating it is harmless.
func (s *Store) Adopt(ctx context.Context, epoch string, by Beat) (adopted int64, err error) {
	for {
		n, err := s.adopt(ctx, epoch, by)
		adopted += n
		if err != nil || n < settleChunk {
			return adopted, err
		}
	}
}

func (s *Store) adopt(ctx context.Context, epoch string, by Beat) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatementTimeout)
	defer cancel()
	res, err := s.claims.ExecContext(ctx, adoptSQL, by.Epoch, by.N, epoch, settleChunk)
	if err != nil {
		return 0, fmt.Errorf("adopt batches of epoch %s: %w", epoch, err)
	}
	return res.RowsAffected()
}
