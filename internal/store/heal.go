package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A HealClaim is a claim of journalled batches that Redis has lost: one open transaction that holds them, so that
// workers share the work and none does it twice. It must end with Settle or Release. Not safe for concurrent use.
type HealClaim struct {
	Batches []JournalBatch
	Damaged []DamagedBatch // cannot be unlinked again; Settle sets them aside
	store   *Store
	tx      *sql.Tx
}

// A JournalBatch is one batch of the journal.
type JournalBatch struct {
	ID      uint64
	Entries []Entry
}

// A DamagedBatch is one whose body cannot be unpacked. Nobody knows what it unlinked.
type DamagedBatch struct {
	Batch
	Err error
}

// damagedEpoch is the epoch of batches that healing has set aside, so that it neither meets them again nor forgets
// them: LastPositions leaves it out. Status counts them, ReadJournal tries them again, retention removes them like any
// other.
const damagedEpoch = "damaged"

// MaxHeal is how many batches one claim takes at most. It also ends at healEntries rows and sweeps, at healKeys keys
// and at healBytes of names, which a body may pack a hundredfold, but one batch always fits.
const (
	MaxHeal     = 200
	healEntries = 2_000
	healKeys    = 50_000
	healBytes   = 8 << 20
)

// Contract: exclusive locks on the batches that it returns and on no other (READ COMMITTED, index on (epoch, beat),
// SKIP LOCKED), LIMIT rows. Repeating it elsewhere returns other batches. The rest is fetched separately, by primary
// key, without a further lock.
const (
	claimHealSQL = `SELECT id, row_count FROM cache_outbox_journal FORCE INDEX (beats)
WHERE epoch = ? AND beat > ? ORDER BY beat LIMIT ? FOR UPDATE SKIP LOCKED`
)

// ClaimHeal takes the oldest batches of an epoch after a position that nobody else holds, at most limit, damaged ones
// among them, nil if there are none. Its ctx must outlive the claim: when it ends, the batches are released.
func (s *Store) ClaimHeal(ctx context.Context, after Position, limit int) (*HealClaim, error) {
	tx, err := s.claims.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin healing: %w", err)
	}
	r := &HealClaim{store: s, tx: tx}
	if err := r.fetch(ctx, after, limit); err != nil {
		return nil, errors.Join(fmt.Errorf("claim batches to heal: %w", err), r.Release())
	}
	if len(r.Batches)+len(r.Damaged) == 0 {
		return nil, r.Release()
	}
	return r, nil
}

// Release gives the batches back.
func (r *HealClaim) Release() error {
	if err := r.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("release batches: %w", err)
	}
	return nil
}

func (r *HealClaim) fetch(ctx context.Context, after Position, limit int) error {
	ids, err := r.claim(ctx, after, limit)
	all, keys, bytes := 0, 0, 0
	for _, id := range ids {
		b := Batch{ID: id}
		var body []byte
		row := r.tx.QueryRowContext(ctx, journalRowSQL, id)
		if err := row.Scan(&b.ID, &b.Worker, &b.SettledAt, &b.Rows, &b.MapVersion, &b.Born, &body); err != nil {
			return err
		}
		entries, err := DecodeEntries(body)
		if err != nil {
			r.Damaged = append(r.Damaged, DamagedBatch{b, err})
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

// claim locks batches and returns the ids of those that fit.
func (r *HealClaim) claim(ctx context.Context, after Position, limit int) (ids []uint64, err error) {
	rows, err := r.tx.QueryContext(ctx, claimHealSQL, after.Epoch, after.N, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for total := 0; rows.Next(); {
		var id uint64
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		if total += n; len(ids) == 0 || total <= healEntries {
			ids = append(ids, id)
		}
	}
	return ids, rows.Err()
}

// Contract: exclusive locks on the rows listed, which the transaction holds already, found by primary key. Repeating it
// changes nothing. Without a birth the one that is there stays.
const movePositionSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_journal AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.epoch = ?, o.beat = ?, o.born_us = COALESCE(?, o.born_us)`

// Contract: appends rows, or makes those due whose id is there: exclusive locks on these. Repeating it changes nothing.
const (
	renewSweepSQL = "INSERT INTO cache_outbox_sweeps (id, kind, name, hold_ms) VALUES "
	hurrySweepSQL = " ON DUPLICATE KEY UPDATE not_before = UTC_TIMESTAMP(6)"
)

// Settle notes that the batches were unlinked again, up to position and from the time of Redis that born is (see
// Settlement), asks once more for the sweeps that they finished, sets the damaged ones aside, and commits.
func (r *HealClaim) Settle(ctx context.Context, position Position, born uint64) error {
	if err := r.settle(ctx, position, born); err != nil {
		_ = r.tx.Rollback() // err says why; the server rolls back in any case
		return fmt.Errorf("settle healed batches: %w", err)
	}
	if err := r.store.commit(r.tx); err != nil {
		return fmt.Errorf("settle healed batches: %w", err)
	}
	return nil
}

func (r *HealClaim) settle(ctx context.Context, position Position, born uint64) error {
	if err := r.renewSweeps(ctx); err != nil {
		return fmt.Errorf("request sweeps: %w", err)
	}
	done := appendIDs(nil, r.Batches, func(b JournalBatch) uint64 { return b.ID })
	if err := r.move(ctx, done, position, born); err != nil {
		return err
	}
	aside := appendIDs(nil, r.Damaged, func(b DamagedBatch) uint64 { return b.ID })
	if err := r.move(ctx, aside, Position{Epoch: damagedEpoch}, 0); err != nil {
		return err
	}
	return r.store.notePosition(ctx, r.tx, position)
}

// move makes batches those of a position and a birth. That of an older unlink is of no use: Redis has lost it, and may
// have another clock since.
func (r *HealClaim) move(ctx context.Context, ids []uint64, to Position, born uint64) error {
	if len(ids) == 0 {
		return nil
	}
	return moveBatches(ctx, r.tx, ids, to, sql.Null[uint64]{V: born, Valid: true})
}

// moveBatches makes batches that the transaction holds those of a position, and of a birth if there is one.
func moveBatches(ctx context.Context, tx *sql.Tx, ids []uint64, to Position, born sql.Null[uint64]) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, movePositionSQL, string(list), to.Epoch, to.N, born)
	return err
}

// notePosition journals a batch of nothing, by which others hear that older batches have become those of a position:
// see RecentPositions.
func (s *Store) notePosition(ctx context.Context, tx *sql.Tx, position Position) error {
	body, err := EncodeEntries(nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, journalSQL, s.record(0, "", position, 0, nil, body, nil)...)
	return err
}

// renewSweeps asks again for the sweeps that the batches finished: each pattern once, with the longest of its holds, each
// index set under its old id, because one that was being taken apart is found by it.
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
	for part := range slices.Chunk(sweeps, settleChunk) {
		args := make([]any, 0, 4*len(part))
		for _, w := range part {
			args = append(args, w.ID, string(w.Kind), []byte(w.Name), w.HoldMillis)
		}
		if _, err := r.tx.ExecContext(ctx, renewSweepSQL+strings.Repeat("(?,?,?,?),", len(part)-1)+"(?,?,?,?)"+hurrySweepSQL, args...); err != nil {
			return err
		}
	}
	return nil
}
