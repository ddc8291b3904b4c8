package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/internal/session"
)

// A HealClaim is a claim of journaled batches that Redis has lost: one open transaction that locks
// them, so workers share the work without repeating it. It must end with Settle or Release. Not
// safe for concurrent use.
type HealClaim struct {
	Batches []JournalBatch
	Damaged []DamagedBatch // cannot be unlinked again; Settle sets them aside
	journal *Journal
	tx      *sqlx.Tx
}

// A JournalBatch is one batch of the journal.
type JournalBatch struct {
	ID      uint64
	Entries []JournalEntry
}

// A DamagedBatch is a batch whose body cannot be unpacked. Its names are unknown.
type DamagedBatch struct {
	Batch
	Err error
}

// DamagedEpoch is the epoch of batches that healing has set aside. Healing does not find them
// again, since LastPositions leaves the epoch out. Status counts them, ReadJournal tries them
// again, and retention deletes them like all others.
const DamagedEpoch = "damaged"

// MaxHeal is how many batches one claim takes at most. A claim also ends at healEntries rows and
// sweeps, at healKeys keys and at healBytes of names, which a body may compress a hundredfold, but
// it always takes at least one batch.
const (
	MaxHeal     = 200
	healEntries = 2_000
	healKeys    = 50_000
	healBytes   = 8 << 20
)

// Contract: exclusive locks on the batches that it returns and on no other (READ COMMITTED, index
// on (epoch, beat), SKIP LOCKED), LIMIT rows. Repeating it elsewhere returns other batches. The
// other columns are fetched separately, by primary key, without a further lock.
const claimHealSQL = `SELECT id, row_count FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch = ? AND beat > ? ORDER BY beat LIMIT ? FOR UPDATE SKIP LOCKED`

// ClaimHeal locks the oldest batches of an epoch after a position that no other session has locked,
// at most limit, including damaged ones. It returns nil if there are none. Its ctx must outlive the
// claim: when ctx ends, the batches are released.
func (j *Journal) ClaimHeal(ctx context.Context, after Position, limit int) (*HealClaim, error) {
	tx, err := j.db.Claims.BeginTxx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin healing: %w", err)
	}
	r := &HealClaim{journal: j, tx: tx}
	if err := r.fetch(ctx, after, limit); err != nil {
		return nil, errors.Join(fmt.Errorf("claim batches to heal: %w", err), r.Release())
	}
	if len(r.Batches)+len(r.Damaged) == 0 {
		return nil, r.Release()
	}
	return r, nil
}

// Release releases the batches.
func (r *HealClaim) Release() error {
	return dberr.Wrap(release(r.tx), "release batches")
}

// release rolls back a transaction unless that is done.
func release(tx interface{ Rollback() error }) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

func (r *HealClaim) fetch(ctx context.Context, after Position, limit int) error {
	ids, err := r.claim(ctx, after, limit)
	all, keys, bytes := 0, 0, 0
	for _, id := range ids {
		var row journalRow
		if err := r.tx.GetContext(ctx, &row, journalRowSQL, id); err != nil {
			return err
		}
		entries, err := DecodeEntries(row.Body)
		if err != nil {
			r.Damaged = append(r.Damaged, DamagedBatch{row.Batch, err})
			continue
		}
		all += len(entries)
		for i := range entries {
			keys += len(entries[i].Keys)
			bytes += entries[i].Bytes()
		}
		if len(r.Batches) > 0 && (keys > healKeys || all > healEntries || bytes > healBytes) {
			return nil // the rest is released with the claim's end
		}
		r.Batches = append(r.Batches, JournalBatch{id, entries})
	}
	return err
}

// claim locks batches and returns the IDs of the batches that fit.
func (r *HealClaim) claim(ctx context.Context, after Position, limit int) (ids []uint64, err error) {
	var batches []Batch
	if err := r.tx.SelectContext(ctx, &batches, claimHealSQL, after.Epoch, after.N, limit); err != nil {
		return nil, err
	}
	total := 0
	for _, b := range batches {
		if total += b.Rows; len(ids) == 0 || total <= healEntries {
			ids = append(ids, b.ID)
		}
	}
	return ids, nil
}

// Contract: exclusive locks on the listed rows, which the transaction already has, found by primary
// key. Repeating it changes nothing. Without a new unlink time the old one stays.
const movePositionSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_journal AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.epoch = ?, o.beat = ?, o.born_us = COALESCE(?, o.born_us)`

// Contract: appends rows, or makes existing ones due: exclusive locks on these. Repeating it
// changes nothing.
const (
	renewSweepSQL = "INSERT INTO cache_outbox_sweeps (id, kind, name, hold_ms) VALUES "
	hurrySweepSQL = " ON DUPLICATE KEY UPDATE not_before = UTC_TIMESTAMP(6)"
)

// Settle records that the batches were unlinked again, up to position and with the unlink time born
// (see Settlement). It requests again the sweeps that the batches had finished, sets the damaged
// batches aside, and commits.
func (r *HealClaim) Settle(ctx context.Context, position Position, born uint64) error {
	err := r.settle(ctx, position, born)
	if err == nil {
		err = r.journal.db.Commit(r.tx.Tx)
	} else {
		_ = r.tx.Rollback() // err has the reason; the server rolls back in any case
	}
	return dberr.Wrap(err, "settle healed batches")
}

func (r *HealClaim) settle(ctx context.Context, position Position, born uint64) error {
	if err := r.renewSweeps(ctx); err != nil {
		return fmt.Errorf("request sweeps: %w", err)
	}
	done := session.AppendIDs(nil, r.Batches, func(b JournalBatch) uint64 { return b.ID })
	if err := r.move(ctx, done, position, born); err != nil {
		return err
	}
	aside := session.AppendIDs(nil, r.Damaged, func(b DamagedBatch) uint64 { return b.ID })
	if err := r.move(ctx, aside, Position{Epoch: DamagedEpoch}, 0); err != nil {
		return err
	}
	return r.journal.noteBatch(ctx, r.tx, "", position, nil)
}

// move sets the position and the unlink time of batches. An older unlink time is useless: Redis has
// lost that unlink, and its clock may differ since.
func (r *HealClaim) move(ctx context.Context, ids []uint64, to Position, born uint64) error {
	if len(ids) == 0 {
		return nil
	}
	return moveBatches(ctx, r.tx, ids, to, sql.Null[uint64]{V: born, Valid: true})
}

// moveBatches sets the position of batches that the transaction has locked, and their unlink time
// if there is one.
func moveBatches(ctx context.Context, tx *sqlx.Tx, ids []uint64, to Position, born sql.Null[uint64]) error {
	_, err := tx.ExecContext(ctx, movePositionSQL, jsonText(ids), to.Epoch, to.N, born)
	return err
}

// noteBatch journals a batch without rows. One without entries shows other workers that older batches
// have moved to a position: see RecentPositions.
func (j *Journal) noteBatch(ctx context.Context, tx sqlx.ExecerContext, mapVersion string, position Position, entries []JournalEntry) error {
	body, err := EncodeEntries(entries)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, RecordSQL, j.Record(0, mapVersion, position, 0, nil, body, nil)...)
	return err
}

// renewSweeps requests again the sweeps that the batches had finished. It requests each pattern
// once, with the longest hold time, and each index set under its old ID, which identifies a set
// that was being cleared.
func (r *HealClaim) renewSweeps(ctx context.Context) error {
	var sweeps []Sweep
	seen := map[string]int{} // patterns, in sweeps
	for _, b := range r.Batches {
		for i := range b.Entries {
			e := &b.Entries[i]
			if !e.IsSweep() {
				continue
			}
			for _, p := range e.Patterns {
				if _, known := seen[p]; !known {
					seen[p] = len(sweeps)
					sweeps = append(sweeps, Sweep{ID: e.ID, Kind: SweepPattern, Name: p})
				}
				w := &sweeps[seen[p]]
				w.HoldMillis = max(w.HoldMillis, e.HoldMillis)
			}
			for _, s := range e.Sets {
				sweeps = append(sweeps, Sweep{ID: e.ID, Kind: SweepSet, Name: s, HoldMillis: e.HoldMillis})
			}
		}
	}
	for part := range slices.Chunk(sweeps, session.Chunk) {
		args := make([]any, 0, 4*len(part))
		for _, w := range part {
			args = append(args, w.ID, string(w.Kind), []byte(w.Name), w.HoldMillis)
		}
		if _, err := r.tx.ExecContext(ctx, renewSweepSQL+tuples("(?,?,?,?)", len(part))+hurrySweepSQL, args...); err != nil {
			return err
		}
	}
	return nil
}
