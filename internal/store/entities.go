package store

import (
	"context"
	"fmt"
)

// Contract for both: no lock (consistent reads). The first reads LIMIT rows by primary key, the
// other one entry of the index on settled_at and its row. Bodies beyond 256 KiB are left out.
const (
	newestBodiesSQL = "SELECT IF(LENGTH(body) <= 262144, body, '') FROM cache_outbox_journal ORDER BY id DESC LIMIT ?"
	bodyOfTimeSQL   = `SELECT IF(LENGTH(body) <= 262144, body, '') FROM cache_outbox_journal FORCE INDEX (settled)
WHERE settled_at >= UTC_TIMESTAMP(6) - INTERVAL ? MINUTE ORDER BY settled_at LIMIT 1`
)

const (
	newestBodies = 100     // batches that JournalEntities reads
	bodyInterval = 15      // minutes between two more batches
	bodyReach    = 24 * 60 // minutes back
)

// JournalEntities lists entities that were settled within a day: of the newest hundred batches, and
// of one batch per quarter of an hour. If the journal has more than a hundred batches, it runs some
// hundred small statements, so call it rarely.
func (j *Journal) JournalEntities(ctx context.Context) (map[string]bool, error) {
	var bodies [][]byte
	if err := j.db.Side.SelectContext(ctx, &bodies, newestBodiesSQL, newestBodies); err != nil {
		return nil, fmt.Errorf("list entities of the journal: %w", err)
	}
	more := len(bodies) == newestBodies // else these are all batches
	for ago := bodyReach; more && ago > 0; ago -= bodyInterval {
		if err := j.db.Side.SelectContext(ctx, &bodies, bodyOfTimeSQL, ago); err != nil {
			return nil, fmt.Errorf("list entities of the journal: %w", err)
		}
	}
	found := map[string]bool{}
	for _, body := range bodies {
		entries, err := DecodeEntries(body)
		if err != nil { // left out above, or damaged, which other readers report
			continue
		}
		for i := range entries {
			if !entries[i].IsSweep() {
				found[entries[i].Entity] = true
			}
		}
	}
	return found, nil
}
