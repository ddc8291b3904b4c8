package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// A RecentBatch is a batch of the end of the journal.
type RecentBatch struct {
	Batch
	Entries []JournalEntry // nil: not read, because the caller knows them or the body is too large
}

// Contract: no lock (a consistent read); LIMIT rows by primary key, the newest first, and the
// bodies of those that are small and not in the list.
const recentSQL = `SELECT id, worker, settled_at, row_count, map_version, born_us, journey,
IF(LENGTH(body) <= ? AND id NOT IN (?), body, NULL) AS body FROM cache_outbox_journal FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ?`

// Recent returns the newest batches, at most limit, the newest first. It reads bodies of at most
// maxBody bytes, except for known batches. It leaves the entries of a batch that cannot
// be unpacked nil.
func (j *Journal) Recent(ctx context.Context, limit, maxBody int, known []uint64) ([]RecentBatch, error) {
	ctx, cancel := context.WithTimeout(ctx, j.db.Config.StatementTimeout)
	defer cancel()
	query, args, err := sqlx.In(recentSQL, maxBody, append([]uint64{0}, known...), limit)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		Batch
		Packed []byte `db:"journey"`
		Body   []byte `db:"body"`
	}
	if err := j.db.Side.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("read the end of the journal: %w", err)
	}
	list := make([]RecentBatch, len(rows))
	for i := range rows {
		r := &rows[i]
		list[i].Batch = r.Batch
		if r.Body == nil {
			continue
		}
		if list[i].Entries, err = DecodeEntries(r.Body); err == nil {
			list[i].Journey = readJourney(r.Packed, list[i].Entries)
		}
	}
	return list, nil
}
